"""A tiny transformer: one class for encoders and decoders, for tokens and for real features."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from torch import Tensor, cat, nn

from pe_course import checks
from pe_lib.attention import MultiHeadAttention
from pe_lib.cache import KVCache
from pe_lib.encoding import NoPosition, PositionEncoding, as_positions, order_of
from pe_lib.initial import normal

EMBED_STD = 0.3  # of token embeddings, and of every position vector that is added to something


def like_weights(inputs: Tensor, model: nn.Module) -> Tensor:
    """Return real inputs in the dtype of the model's weights, and token numbers as they are."""
    weight = next(model.parameters(), None)
    known = weight is not None and inputs.is_floating_point()
    return inputs.to(weight) if known else inputs


def fitted(encoding: PositionEncoding, model: nn.Module) -> PositionEncoding:
    """Return the encoding itself if it has the dtype and device of a model, else a copy that has.

    Raises:
        TypeError: if encoding is no `PositionEncoding`.
    """
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(f"encoding must be a PositionEncoding, got {encoding!r}")
    weight = next(model.parameters())
    fits = all(
        tensor.device == weight.device
        and (tensor.dtype == weight.dtype or not tensor.is_floating_point())
        for tensor in chain(encoding.parameters(), encoding.buffers())
    )
    # Another model may hold the one that is given.
    return encoding if fits else deepcopy(encoding).to(weight)


def repeated_names(model: nn.Module) -> dict[str, str]:
    """Return each name under which a tensor of a model stands again, with its first name."""
    first: dict[int, str] = {}
    named = chain(
        model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    )
    known = ((name, first.setdefault(id(tensor), name)) for name, tensor in named)
    return {name: before for name, before in known if name != before}


def save_once(model: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """Leave of a shared tensor its first name: a file format may refuse it twice."""
    for name in repeated_names(model):
        state.pop(prefix + name, None)


def load_everywhere(model: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Give a shared tensor, which is saved once, to all layers that share it."""
    for name, first in repeated_names(model).items():
        if prefix + first in state:
            state.setdefault(prefix + name, state[prefix + first])


class Block(nn.Module):
    """Attention, then a two-layer network, each behind a LayerNorm and beside a residual path."""

    def __init__(
        self, d_model: int, n_heads: int, encoding: PositionEncoding, causal: bool
    ) -> None:
        """Create the layers."""
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(
            d_model, n_heads, encoding, causal=causal, embedded=True
        )
        self.norm_2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(
        self, x: Tensor, positions: Tensor | int, mask: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        x = x + self.attention(self.norm_1(x), q_pos=positions, mask=mask, cache=cache)
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class Transformer(nn.Module):
    """A small pre-norm transformer with one position encoding.

    Args:
        n_in: size of the vocabulary, or number of features if `features`.
        n_out: number of outputs per token (or per sequence, if pooled); n_in if None.
        d_model: width D.
        n_heads: heads per layer.
        n_layers: number of layers.
        encoding: shared by all layers, or a sequence of one per layer, of which only the first
            may add to the input. None: no positions.
        causal: a decoder (True) or an encoder (False).
        pool: None for an output per token, "mean" over tokens (masked ones too), or "first"
            token only.
        features: the inputs are real vectors (B, L, n_in) instead of token numbers (B, L).
        embed_std: standard deviation of the initial token embeddings. A position table with
            a very different scale learns slowly, and looks like a bad method.

    Raises:
        ValueError: if `n_layers` or `embed_std` is not positive, `pool` is unknown, the number of
            encodings is not that of the layers, or one that the first layer does not have adds to
            the input.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int | None = None,
        *,
        d_model: int = 32,
        n_heads: int = 4,
        n_layers: int = 2,
        encoding: PositionEncoding | Sequence[PositionEncoding] | None = None,
        causal: bool = False,
        pool: str | None = None,
        features: bool = False,
        embed_std: float = EMBED_STD,
    ) -> None:
        """Create the layers and draw the initial weights."""
        super().__init__()
        checks.integer("n_layers", n_layers)
        checks.above("embed_std", embed_std, 0)
        if pool is not None:
            checks.one_of("pool", pool, ("mean", "first"))
        if encoding is None or isinstance(encoding, PositionEncoding):
            encodings = [NoPosition() if encoding is None else encoding] * n_layers
        elif isinstance(encoding, Sequence) and not isinstance(encoding, str):
            encodings = list(encoding)
        else:
            raise TypeError(f"encoding must be a PositionEncoding, or several, got {encoding!r}")
        if len(encodings) != n_layers:
            raise ValueError(
                f"encoding must be one, or one per layer ({n_layers}), got {len(encodings)}"
            )
        self.pool = pool
        self.inputs: nn.Module = (
            nn.Linear(n_in, d_model) if features else nn.Embedding(n_in, d_model)
        )
        self.blocks = nn.ModuleList(Block(d_model, n_heads, e, causal) for e in encodings)
        self._check_embedding(encodings)
        self.norm = nn.LayerNorm(d_model)
        self.outputs = nn.Linear(d_model, n_in if n_out is None else n_out)
        self._draw_weights(d_model, embed_std)
        self.register_state_dict_post_hook(save_once)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(load_everywhere)  # type: ignore[no-untyped-call]

    @staticmethod
    def _check_embedding(encodings: Sequence[PositionEncoding]) -> None:
        """Raise if an encoding adds to the input, where only that of the first layer is asked."""
        asked = encodings[0].parts()
        for layer, encoding in enumerate(encodings):
            for part in encoding.parts():
                if part.uses("embed") and part not in asked:
                    raise ValueError(
                        f"encoding must have in the first layer what adds to the input, got "
                        f"another {type(part).__name__} in encoding[{layer}]: give one instance "
                        "to the first layer, or to all"
                    )

    def _draw_weights(self, d_model: int, embed_std: float) -> None:
        """Draw embeddings and projections; the encodings keep the weights they came with."""
        for module in [self.inputs, self.blocks, self.outputs]:
            for name, parameter in module.named_parameters():
                if "encoding" in name:
                    continue
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                elif parameter.ndim == 2:
                    parameter.data = normal(*parameter.shape, std=0.5 * d_model**-0.5)
        if isinstance(self.inputs, nn.Embedding):
            self.inputs.weight.data = normal(*self.inputs.weight.shape, std=embed_std)

    @property
    def encoding(self) -> PositionEncoding:
        """The encoding of the first layer, which also embeds the input."""
        first: PositionEncoding = self.blocks[0].attention.encoding  # type: ignore[union-attr, assignment]
        return first

    def check_inputs(self, inputs: Tensor) -> None:
        """Raise unless inputs are (B, L), or features (B, L, n_in), of one token at least."""
        features = isinstance(self.inputs, nn.Linear)
        if inputs.ndim != 2 + features or inputs.shape[1] == 0:
            wanted = "(batch, length >= 1, features)" if features else "(batch, length >= 1)"
            raise ValueError(f"inputs must have shape {wanted}, got {tuple(inputs.shape)}")

    def use_encoding(self, encoding: PositionEncoding) -> None:
        """Use another encoding in all layers from now on; no other weight changes.

        If it has another dtype or device than the model, the model gets a copy that fits.
        """
        encoding = fitted(encoding, self)
        for block in self.blocks:
            block.attention.encoding = encoding  # type: ignore[union-attr]

    def forward(
        self,
        inputs: Tensor,
        *,
        positions: Tensor | int | None = None,
        mask: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Return the outputs for each token, or for each sequence if pooled.

        Args:
            inputs: token numbers (B, L), or features (B, L, n_in).
            positions: as in `MultiHeadAttention`; those after the cache, or 0, 1, ..., if None.
            mask: bool, (B, H, L, Lk), where B, H and L may be 1; False hides a key.
            caches: one per layer, to go on where earlier calls stopped.

        Returns:
            (B, L, n_out), or (B, n_out) if pooled.

        Raises:
            TypeError: if caches are none.
            ValueError: if the inputs have another shape, or there is not one cache per layer.
        """
        self.check_inputs(inputs)
        if caches is not None:
            caches = list(caches) if isinstance(caches, Sequence) else [caches]
            if not all(isinstance(cache, KVCache) for cache in caches):
                raise TypeError(f"caches must be KVCaches, one per layer, got {caches!r}")
            if len(set(map(id, caches))) != len(self.blocks) or len(caches) != len(self.blocks):
                raise ValueError(
                    f"caches must be one per layer ({len(self.blocks)}), each another, got "
                    f"{len(caches)}"
                )
        x = self.inputs(like_weights(inputs, self))  # (B, L, D)
        if positions is None:  # as each layer counts for itself
            positions = 0 if caches is None else caches[0].next_positions(inputs.shape[1])
        x = self.encoding.embed(x, order_of(as_positions(positions, x)))
        for i, block in enumerate(self.blocks):
            x = block(x, positions, mask, None if caches is None else caches[i])
        x = self.norm(x)
        if self.pool is not None:
            x = x.mean(dim=1) if self.pool == "mean" else x[:, 0]  # (B, D)
        out: Tensor = self.outputs(x)
        return out


class LabModel:
    """A causal model of tokens, as the doctor takes it (`posdoctor.models.CausalModel`)."""

    def __init__(self, model: Transformer) -> None:
        """Keep the model, which must take token numbers."""
        if not isinstance(model.inputs, nn.Embedding):
            raise TypeError("model must take token numbers, got one that takes features")
        self.model, self.vocabulary = model.eval(), model.inputs.num_embeddings
        self.dtype = model.inputs.weight.dtype

    def logits(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return logits (B, L, V)."""
        found: Tensor = self.model(ids, positions=positions, mask=mask)
        return found

    def in_chunks(self, chunks: list[Tensor]) -> Tensor:
        """Return the logits of chunks that follow one another."""
        caches = [KVCache() for _ in self.model.blocks]
        return cat([self.model(chunk, caches=caches) for chunk in chunks], dim=1)
