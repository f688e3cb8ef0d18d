"""Multi-head attention with a place for position: a module and its cache.

    output = concat_h(attend(x Wq_h, x Wk_h, x Wv_h)) Wo

`pe_lib.definition` has `attend`, which gives the weights too. Without them the module takes the
fast forms of `pe_lib.fast`, unless these are switched off: the same numbers for less.
"""

from typing import Any, Self

from torch import Tensor, nn

from pe_lib import fast
from pe_lib.arguments import Booleans, Count, checked, lengths_of, require_multiple, require_shapes
from pe_lib.definition import OF_KEYS, OF_QUERIES
from pe_lib.definition import attend as attend
from pe_lib.definition import attention_logits as attention_logits
from pe_lib.encoding import NoPosition as NoPosition
from pe_lib.encoding import PositionEncoding as PositionEncoding
from pe_lib.encoding import default_scale as default_scale
from pe_lib.fast import attend_fused as attend_fused
from pe_lib.positions import AnyPositions, following, joined, order_of, shows_later
from pe_lib.positions import Run as Run
from pe_lib.positions import relative_position as relative_position


class KVCache:
    """The keys, values and positions that earlier calls of one layer have produced.

    Keys are kept as projected, or rotated if the encoding `rotates_once`. Where no gradients are
    recorded the cache grows in place: a new token costs no copy of the old ones.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Any = None  # or (B, H, L, d)
        self.values: Any = None  # or (B, H, L, d)
        self.read: Any = None  # or (B, H, L, n), of an encoding that reads hidden states
        self.positions: AnyPositions = Run(0, 0)
        self.rotated = False  # keys and values are kept so
        self.rooms: tuple[fast.Room | None, ...] = (None, None, None)  # behind keys, values, read
        self.layer: int | None = None  # the id of the one that it belongs to

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def __bool__(self) -> bool:
        """Return True: an empty cache is one, for whoever asks `if cache`."""
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy gets: it may go on in a copy of the layer."""
        return vars(self) | {"layer": None}

    def next_positions(self, length: int) -> AnyPositions:
        """Return the `length` positions that follow those in the cache."""
        return following(self.positions, length)

    def with_more(
        self, k: Tensor, v: Tensor, k_pos: AnyPositions, read: Tensor | None = None
    ) -> Self:
        """Return a cache that holds these keys and values too; this one stays as it is."""
        given = {"held": self.keys, "keys": k}
        require_shapes(given, {"held": "B H L d", "keys": "B H Lk d"}, "behind a cache ")
        grown = type(self)()
        grown.rotated, grown.layer = self.rotated, self.layer
        grown.positions = joined(self.positions, k_pos, k.device)
        grown.keys, keys = fast.append_rows(self.keys, k, self.rooms[0])
        grown.values, values = fast.append_rows(self.values, v, self.rooms[1])
        grown.read, reads = fast.append_rows(self.read, read, self.rooms[2])
        grown.rooms = keys, values, reads
        return grown


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one position encoding.

    Args:
        d_model: width D of input and output.
        n_heads: number of heads H; must divide d_model.
        encoding: the position encoding; `NoPosition()` if None.
        causal: hide keys whose position is greater than the query's.
        embedded: what the encoding adds to the input is in it already. A layer does not add
            it, since a model does so once, before its first layer.
        n_kv_heads: number of heads of keys and values, each for several neighbouring heads of
            queries (grouped-query attention); must divide n_heads, which it is if None.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for groups.
    """

    @checked()
    def __init__(
        self,
        d_model: int,
        n_heads: Count,
        encoding: PositionEncoding | None = None,
        *,
        causal: bool = False,
        embedded: bool = False,
        n_kv_heads: Count | None = None,
    ) -> None:
        """Create the four projections, without biases."""
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        require_multiple("n_heads", n_heads, n_kv_heads, "n_kv_heads must divide it")
        self.d_model = require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, d_model // n_heads
        self.causal, self.embedded = causal, embedded
        self.encoding = NoPosition() if encoding is None else encoding
        for part in self.encoding.parts():
            for name, length in lengths_of(part).items():
                if length != getattr(self, name):
                    raise ValueError(
                        f"encoding must have {name}={getattr(self, name)}, as the layer has, "
                        f"got {type(part).__name__} with {name}={length!r}"
                    )
            acts = part.scale is not None or any(map(part.uses, part.hooks))
            if not acts and not isinstance(part, NoPosition):
                raise ValueError(
                    f"encoding must define a hook, one of {', '.join(part.hooks)}, or be a "
                    f"NoPosition, got {type(part).__name__}"
                )
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    @checked(x="B Lq d_model", context="B Lk d_model", q_pos=OF_QUERIES)
    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: AnyPositions | None = None,
        k_pos: AnyPositions | None = None,
        mask: Booleans | None = None,
        cache: KVCache | None = None,
        weights: bool = False,
    ) -> Any:
        """Attend from `x` (B, Lq, D) to `context`, to itself if None: (B, Lq, D).

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its k_pos: a longer past, or another sequence.
            q_pos: positions of x: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`. If None they go
                on after those in the cache, or start at 0.
            k_pos: positions of the keys, likewise; those of x if None.
            mask: bool, (Lq, Lk), or (B, H, Lq, Lk) where an axis may be 1; False hides a key.
                Padding, (B, Lk), is mask[:, None, None], with the keys of a cache in each call.
            cache: earlier keys and values of this layer; this call's are added to it.
            weights: return the weights (B, H, Lq, Lk) too, as `with_weights` does.
        """
        if context is not None and (q_pos is None or k_pos is None):
            raise ValueError("q_pos and k_pos must be given when context is given")
        encoding, source = self.encoding, x if context is None else context
        cache = KVCache() if cache is None else cache
        if cache.layer not in (None, id(self)):
            raise ValueError("cache must be one that no other layer uses: each has its own")
        q_pos = cache.next_positions(x.shape[1]) if q_pos is None else q_pos
        k_pos = q_pos if k_pos is None else k_pos
        require_shapes({"x": source, "k_pos": k_pos}, {"x": "B Lk D", "k_pos": OF_KEYS})
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(source))  # (B, n_kv_heads, Lk, d)
        v = self.split_heads(self.v_proj(source))  # (B, n_kv_heads, Lk, d)
        q_read = encoding.read(x)  # (B, H, Lq, n)
        k_read = q_read if source is x else encoding.read(source)  # (B, H, Lk, n)
        if len(cache) == 0:
            cache.rotated = fast.keeps_rotated(encoding, self.n_heads, self.n_kv_heads)
        if cache.rotated:
            q, k = fast.rotate(encoding, q, k, q_pos, k_pos)
            v = encoding.rotate_values(v, order_of(k_pos))
            if q.shape[-1] != self.head_dim and encoding.scale is None:
                raise ValueError("encoding must state its scale: `rotate` changes the width")
        seen = cache.with_more(k, v, k_pos, k_read)  # this call's keys behind the earlier ones
        settings: dict[str, Any] = {"causal": self.causal, "mask": mask, "rotated": cache.rotated}
        settings["reads"] = None if q_read is None else (q_read, seen.read)
        given = (q, seen.keys, seen.values, encoding, q_pos, seen.positions)
        if weights:
            output, shares = attend(*given, **settings)
        else:
            output = attend_fused(*given, **settings)
        self.require_sense(q_pos, seen.positions, mask)
        output = self.out_proj(output.transpose(1, 2).flatten(2))  # (B, H, Lq, d) -> (B, Lq, D)
        vars(cache).update(vars(seen), layer=id(self))  # a call that fails has added nothing
        return (output, shares) if weights else output

    def with_weights(self, x: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, arguments as there; return the weights (B, H, Lq, Lk) too."""
        output, weights = self(x, **inputs, weights=True)
        return output, weights

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, heads * d) -> (B, heads, L, d)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2)

    def require_sense(self, q_pos: AnyPositions, k_pos: AnyPositions, mask: Any) -> None:
        """Raise if a code would be left out, or the future shown to what is for the past only."""
        who = type(self.encoding).__name__
        if self.encoding.uses("embed") and not self.embedded:
            raise ValueError(
                f"{who} adds to the input of a model: call encoding.embed(x, positions) once, "
                "before the first layer, and make the layers with embedded=True"
            )
        looks_back = self.causal or not self.encoding.past_only
        if not looks_back and shows_later(order_of(q_pos), order_of(k_pos), mask):
            raise ValueError(
                f"{who} is for keys of the past: make the layer with causal=True, give it a mask "
                "that hides what comes later, or use a method for both sides"
            )
