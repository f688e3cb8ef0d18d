"""What the doctor says: a finding, how sure it is, and what else it could be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FAULT, UNSURE, NOTE = "fault", "cannot tell", "note"


@dataclass(frozen=True)
class Known:
    """What is known of a kind of finding.

    Attributes:
        says: the finding in a sentence.
        thread: address of a public report of the nearest known bug; empty if we know none.
        instead: what else would give the same tensors.
        experiment: what would tell them apart.
    """

    says: str
    thread: str = ""
    instead: tuple[str, ...] = ()
    experiment: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        name: a key of `KNOWN`.
        level: "fault", "cannot tell" (it may be meant) or "note" (legal, but matters in a port).
        detail: the numbers of this case.
        where: "queries", "keys" or "" for both.
    """

    name: str
    level: str
    detail: str = ""
    where: str = ""

    @property
    def known(self) -> Known:
        """Return what is known of this kind."""
        return KNOWN[self.name]

    def __str__(self) -> str:
        """Return the finding in words."""
        side = f" ({self.where})" if self.where else ""
        lines = [f"{self.level.upper()}: {self.name}{side}. {self.known.says}"]
        lines += [f"  Measured: {self.detail}."] if self.detail else []
        lines += [f"  It could also be: {other}." for other in self.known.instead]
        lines += [f"  To tell: {self.known.experiment}."] if self.known.experiment else []
        lines += [f"  A known case: {self.known.thread}"] if self.known.thread else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self) | asdict(self.known)


GITHUB = "https://github.com/"

KNOWN = {
    # The form of the map.
    "random": Known("Two calls with the same input give different results."),
    "not-linear": Known(
        "The output is not a linear function of each vector, so it is no rotation.",
        instead=("a normalisation of queries and keys inside the function",),
        experiment="call the function without the normalisation",
    ),
    "mixes-tokens": Known("The output at one token depends on the vector of another token."),
    "mixes-components": Known("More than two components of a vector mix."),
    "loses-components": Known("Some components of the input do not reach the output."),
    "mixed-layouts": Known(
        "The pairs of one layout get the angles of the other: the two components of a pair are "
        "rotated by different angles.",
        f"{GITHUB}raiyanyahya/how-to-train-your-gpt/pull/7",
    ),
    "sine-sign-lost": Known("Both sines have the same sign: a pair is mixed, but not rotated."),
    "sines-missing": Known("Components are multiplied by cosines; the sines are missing."),
    "cosine-sine-exchanged": Known("Cosine and sine stand in each other's place."),
    "overwritten": Known(
        "The second component is computed from a first one that has been overwritten already."
    ),
    "not-a-rotation": Known("Pairs of components mix, but by no rotation that we know."),
    "writes-other-layout": Known(
        "Components come back in another order than they went in; scores do not see it as long "
        "as queries and keys agree.",
        f"{GITHUB}huggingface/transformers/issues/31859",
    ),
    "changes-input": Known("The function changes q or k in place."),
    # Which position is used.
    "no-position": Known("The output does not depend on any position."),
    "offset-ignored": Known(
        "Positions are counted from 0 along the tensor; those that are given are ignored. With "
        "a cache, every new token gets position 0.",
        f"{GITHUB}lucidrains/rotary-embedding-torch/issues/11",
        ("a function of whole sequences, as encoders have it (examine it with runs=True)",),
        "call it as a cache does, with one token at position 17",
    ),
    "head-as-position": Known(
        "The number of the head is used as the position.",
        instead=("a function of queries and keys (B, L, H, d)",),
        experiment="examine it with blhd=True",
    ),
    "batch-as-position": Known("The number of the sequence in the batch is used as the position."),
    "heads-differ": Known("Heads are rotated differently."),
    "rows-share-positions": Known(
        "All sequences of a batch get the positions of the first one: left padding and packing "
        "go wrong.",
        f"{GITHUB}unslothai/unsloth/issues/3699",
    ),
    "rows-interfere": Known("A sequence's result depends on the other sequences of the batch."),
    "first-position-only": Known(
        "Only the first position is used, and the rest counted from there: packed sequences and "
        "gaps go wrong.",
        f"{GITHUB}huggingface/transformers/issues/40490",
    ),
    "positions-misread": Known("Tokens do not get the rotation of the position given for them."),
    "counted-from": Known(
        "Position 0 is rotated already. Scores see differences only, so this is harmless as long "
        "as queries and keys, and cached and new tokens, agree."
    ),
    "query-key-shift": Known(
        "Queries and keys at the same position get different angles: distances are off by a "
        "constant.",
    ),
    "clamped": Known("All positions past a certain one get the same rotation."),
    "wraps": Known("Positions start again from 0 after a certain one."),
    "two-countings": Known(
        "From some position on, positions are counted otherwise: two numberings meet in one text, "
        "such as one of a prompt with its padding and one of real tokens.",
        f"{GITHUB}ML-GSAI/LLaDA/issues/120",
    ),
    # Paths: the same token, called in another way.
    "one-token": Known(
        "One token alone, as in decoding, is not treated as the same token among others.",
        f"{GITHUB}Blaizzy/mlx-vlm/issues/1983",
    ),
    "few-tokens": Known(
        "A few tokens, as in a speculative window, are not treated as the same tokens among more."
    ),
    "odd-length": Known("A call of an odd length treats tokens otherwise than one of 32."),
    "long-input": Known("A long call treats tokens otherwise than short ones."),
    "batch": Known("Several rows are treated otherwise than the same rows alone."),
    "short-floats": Known("Queries and keys in a short float take another way."),
    "int32-positions": Known("Positions in int32 are treated otherwise than those in int64."),
    "strides": Known("Vectors that are not contiguous in memory come back otherwise."),
    "grouped-heads": Known(
        "Keys are treated otherwise where they have fewer heads than queries (grouped heads)."
    ),
    "heads-mixed": Known(
        "A head's result depends on the vectors of other heads: heads have changed places or mix."
    ),
    "jumps": Known("Positions that jump or restart give a token another rotation than a run."),
    "state": Known(
        "A token is treated otherwise after other calls: the function keeps a table or a count."
    ),
    "width": Known(
        "Another width of the head changes the layout, or the share that rotates: a branch of its "
        "own, or blocks into which the width does not fit."
    ),
    "length-dependent": Known(
        "The rotation of a token depends on the longest position in the call. Keys that were "
        "rotated in a shorter call do not fit: a cache must keep them unrotated.",
        f"{GITHUB}huggingface/transformers/issues/25104",
        ("dynamic NTK", "LongRoPE with its two sets of factors"),
        "read the configuration's rope_type",
    ),
    # Direction and sides.
    "direction": Known(
        "Pairs rotate backwards: the angle falls with the position. A model trained with the "
        "usual direction reads before for after.",
        instead=("the convention of nanochat, whose models are trained so",),
        experiment="give what is expected (a base or a configuration), or compare with the "
        "code that the model was trained with",
    ),
    "opposite-directions": Known(
        "Queries and keys rotate in opposite directions: the score depends on the sum of the two "
        "positions, not on their difference."
    ),
    "one-side-only": Known("Only queries, or only keys, are rotated."),
    "layouts-differ": Known("Queries and keys pair their components differently."),
    "sides-differ": Known("Queries and keys are rotated by different frequencies."),
    # Frequencies.
    "index-from-one": Known(
        "The exponents start at 2 / d instead of 0: the first pair does not rotate by one radian.",
        instead=("position interpolation by the same factor",),
        experiment="change the base: interpolation leaves the first frequency as it is",
    ),
    "exponent-halved": Known(
        "The exponent is i / d where 2i / d was expected: the base is the square root of the "
        "expected one."
    ),
    "exponent-over-whole-width": Known(
        "The exponents are divided by a larger width than the one that rotates."
    ),
    "frequencies-grow": Known("Frequencies grow from pair to pair: the exponent lost its minus."),
    "frequencies-all-one": Known("All pairs rotate equally fast."),
    "not-radians": Known(
        "The first pair rotates by a full circle or a fraction of one, not by one radian."
    ),
    "unknown-frequencies": Known(
        "The frequencies follow no rule that we know.",
        instead=("LongRoPE's factors, one per pair", "learned frequencies", "a wrong formula"),
        experiment="give the configuration, or a reference, as `expect`",
    ),
    "unusual-base": Known(
        "The frequencies form a geometric series with a base that is no usual one.",
        instead=(
            "an exponent i / d in place of 2i / d (the base is then the root of the one meant)",
            "NTK-aware scaling (a larger base says the same)",
            "exponents divided by d - 2 or by another width",
        ),
        experiment="give the base that is meant as `expect`, or call with two head widths",
    ),
    "not-proportional": Known(
        "The angle does not grow in proportion to the position.",
        instead=("rows and columns of a grid read from one number",),
        experiment="give positions with one number per axis (`axes`)",
    ),
    "grid": Known(
        "Rows and columns of a grid are read from one number.",
        instead=("positions that wrap",),
        experiment="give positions with one number per axis (`axes`)",
    ),
    # Gain.
    "gain-on-one-side": Known("Queries are scaled, keys are not, or the other way round."),
    "gain-differs": Known("Pairs are scaled differently."),
    "gain-missing": Known(
        "The frequencies are YaRN's, but nothing is scaled: scores lack YaRN's factor.",
        f"{GITHUB}turboderp-org/exllamav3/issues/259",
        (
            "a configuration whose mscale and mscale_all_dim are equal (DeepSeek), which moves "
            "the factor into the softmax scale",
        ),
        "look whether the scale of the softmax has the factor, or give the configuration",
    ),
    "both-grow": Known(
        "Queries and keys are both scaled up with the position: xPos without the inverse on keys.",
        f"{GITHUB}lucidrains/rotary-embedding-torch/issues/3",
    ),
    "factor-falls": Known(
        "Queries are scaled down with their positions, so that attention flattens.",
        instead=("a softening that is meant",),
        experiment="compare with the code that the model was trained with",
    ),
    # Precision.
    "positions-rounded": Known(
        "Positions are rounded: neighbouring tokens get the same rotation.",
        f"{GITHUB}huggingface/transformers/issues/29285",
    ),
    "angles-rounded": Known(
        "Angles are rounded to a short float before cosine and sine.",
        f"{GITHUB}huggingface/transformers/issues/29285",
    ),
    "frequencies-rounded": Known(
        "Frequencies are kept in a short float: the error grows with the position.",
        f"{GITHUB}EleutherAI/gpt-neox/issues/1016",
    ),
    "tf32": Known(
        "Positions and frequencies are rounded to 11 bits, as a matrix product in TF32 does.",
        f"{GITHUB}huggingface/transformers/issues/48428",
        ("float16, which beyond 65,504 gives no number at all",),
        "call with a position above 65,504",
    ),
    "tables-rounded": Known("Cosines and sines are kept in a short float; the angles are right."),
    "precision-lost": Known("Angles are wrong at far positions, for a cause that we cannot name."),
    "not-finite": Known("Far positions give numbers that are not finite."),
    # Compared with what was expected.
    "base": Known(
        "The base is not the expected one.", f"{GITHUB}Open-Athena/MarinFold/issues/184"
    ),
    "layout": Known(
        "Components are paired in the other layout.",
        f"{GITHUB}ikawrakow/ik_llama.cpp/pull/2290",
        ("the projections were permuted to fit, as a conversion does",),
        "compare the scores of a real token sequence in both models",
    ),
    "rotary-width": Known("Another number of components rotates than expected."),
    "which-end": Known("The components that rotate stand at the other end of the head."),
    "rule": Known("The frequencies follow another scaling rule than expected."),
    "factor": Known("All frequencies are off by one factor."),
    "frequencies": Known("The frequencies are not the expected ones."),
    "gain": Known(
        "Queries and keys are not scaled as expected.",
        f"{GITHUB}turboderp-org/exllamav3/issues/259",
    ),
    "axes-exchanged": Known(
        "Two axes of the position have changed places.",
        f"{GITHUB}huggingface/pytorch-image-models/pull/2692",
    ),
    "axes-split": Known(
        "Other pairs belong to an axis than expected, such as chunks for an interleaved split.",
        f"{GITHUB}vllm-project/vllm-omni/pull/1784",
    ),
    "axis-unused": Known("No pair looks at one of the numbers of a position."),
    "kind": Known("The two are of different kinds."),
    # A bias.
    "bias-lost": Known(
        "The bias is zero everywhere.", f"{GITHUB}Dao-AILab/flash-attention/issues/332"
    ),
    "bias-sign": Known("The bias rewards distance where it should penalise it."),
    "bias-not-relative": Known(
        "The bias changes when all positions are shifted.",
        instead=("FIRE, which divides the distance by the query's position",),
        experiment="shift positions by more and less than the length and look for a threshold",
    ),
    "bias-offset-ignored": Known(
        "A single query gets the first row of the bias, wherever it stands: a cache breaks it."
    ),
    "bias-mirrored": Known("The past shares one number and the future is resolved: the two sides "
                           "are exchanged."),
    "bias-row-constant": Known(
        "The bias holds a number per query beside the distance, which the softmax ignores."
    ),
    "heads-share-slope": Known("All heads have the same slope."),
    "slopes": Known(
        "The slopes are not those of ALiBi for this number of heads.",
        instead=("slopes that are learned (KERPLE)", "MPT's alibi_bias_max other than 8"),
        experiment="give the bias that is meant as `expect`",
    ),
    "bias-values": Known("The two biases differ, by more than a softmax ignores."),
    "bias-future": Known(
        "The two biases differ ahead of the query only, where a causal model does not look.",
        instead=("no difference at all, in a decoder",),
        experiment="compare them with the model's mask added to both",
    ),
    # A code that is added.
    "code-lost": Known("The code does not depend on the position."),
    "code-shifted": Known(
        "The code of position p is that of another position.",
        f"{GITHUB}huggingface/sentence-transformers/pull/3879",
        ("fairseq's numbers, which begin behind the padding's", "distances that fall"),
        "give the code that is meant as `expect`",
    ),
    "code-order": Known("The code's components stand in another order, such as cosines first."),
    "code-scale": Known("The code is the expected one times a number."),
    "code-values": Known("The codes are not the expected ones."),
    # A whole model.
    "cache": Known(
        "Decoding with a cache gives other logits than the whole sequence at once.",
        f"{GITHUB}lucidrains/rotary-embedding-torch/issues/11",
        ("a mask that the cached call lacks", "keys rotated by a rule that looks at the length"),
        "pass the positions of the new tokens explicitly",
    ),
    "chunked-prefill": Known("A prompt in chunks gives other logits than at once."),
    "left-padding": Known(
        "Padding on the left changes the logits of the real tokens.",
        f"{GITHUB}huggingface/transformers/issues/22161",
        ("the mask does not hide the padding",),
        "pass positions that count real tokens only; then shift them: relative methods forget it",
    ),
    "packing": Known(
        "A sequence packed behind another one gets other logits than alone.",
        f"{GITHUB}huggingface/transformers/issues/40490",
        ("the mask lets it look across the border",),
        "restart the positions at the border and compare again",
    ),
    "layer-rotates": Known("A layer turns queries or keys that the configuration leaves alone."),
    "layer-unrotated": Known("A layer does not rotate, and the configuration says that it does."),
    "scores-differ": Known("The same queries and keys get other scores than the original gives."),
    "layer-otherwise": Known("A layer moves queries or keys otherwise than the configuration says, "
                             "by no rotation that we can name."),
    "mask-alone": Known(
        "A 2-D mask alone does not move positions: behind padding, tokens get later ones. "
        "`generate` passes positions; a plain call must be given them.",
        f"{GITHUB}huggingface/transformers/issues/22161",
    ),
    "generate": Known(
        "`generate` with padding on the left and a 2-D mask gives other logits than without.",
        f"{GITHUB}unslothai/unsloth/issues/3699",
    ),
    "continued": Known("A cache that is continued by a longer piece gives other logits."),
    "shift": Known(
        "Logits change when all positions are shifted: legal for absolute codes, a fault for "
        "rotary ones and biases of distance."
    ),
    # A configuration.
    "base-missing": Known(
        "The configuration names no base, so whoever reads it takes a default.",
        f"{GITHUB}vllm-project/vllm/issues/42624",
    ),
    "contradiction": Known(
        "Two fields of the configuration cannot both be meant.",
        f"{GITHUB}Open-Athena/MarinFold/issues/184",
    ),
    "factor-unlike-lengths": Known(
        "The scaling factor is not the ratio of the two lengths that the configuration names."
    ),
    "base-small": Known(
        "The base is the old default, and the context is far longer than models with it had.",
        f"{GITHUB}vllm-project/vllm/pull/56066",
        ("a model that was trained so, as some encoders are",),
        "look at the file that the model was published with, and at its loss against the length",
    ),
    "field-unread": Known(
        "The configuration has fields that its rule or its class does not read.",
        instead=("a rule of the model's own code",),
        experiment="change the field and see whether the frequencies change",
    ),
    "trained-length-missing": Known(
        "The rule needs the length before the extension, and the configuration does not name it.",
        instead=("the context that it names is still the trained one",),
        experiment="compare the frequencies with those of the model's own code",
    ),
    "factor-idle": Known("The factor of the rule is 1: it changes nothing."),
    "long-factors-unused": Known(
        "The factors for long sequences are never used, or are those for short ones."
    ),
}  # fmt: skip
