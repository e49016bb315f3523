"""An encoder: text in, token states and attention rows out, never changed after loading."""

import copy
import hashlib
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, PreTrainedModel

from lmk_viz.attention import TILE_BYTES, CaptureStoppedError, capture_rows
from lmk_viz.attention_profile import AttentionProfile
from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    ChunkingMode,
    EncoderConfig,
    LayerKind,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
)
from lmk_viz.forecast import (
    Forecast,
    MachineSpeed,
    calibrate,
    check_fits,
    forecast_run,
    free_memory,
)
from lmk_viz.landmarks import (
    MIN_LENGTH,
    Layout,
    SpecialIds,
    Tokens,
    build_layout,
    collate,
)
from lmk_viz.latent_attention import LatentAttention
from lmk_viz.model_facts import SENTINEL_LENGTH, ModelFacts, digest_tensor
from lmk_viz.pooling import POOLINGS, pool, pool_mask, read_positions, resolve
from lmk_viz.row_bins import RowBins
from lmk_viz.text import sentence_spans

__all__ = ["Encoder"]


SLOW_FLOPS = 1.5e10
"""Operations a second that even a small machine does."""


class Encoder(ModelFacts):
    """A transformers encoder with its tokenizer, shared by all who use it.

    Every method may be called from several threads: the tokenizer and the model have a lock
    each, and neither is ever switched to another setting after construction.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        name: str = "custom",
        source: str | None = None,
        trained_for: PoolingMode | None = None,
        latents: LatentAttention | None = None,
        training_length: int | None = None,
    ) -> None:
        """Takes a loaded model and its tokenizer; `from_pretrained` loads them by name.

        Args:
            model: in evaluation mode, loaded with `attn_implementation=ATTENTION_NAME` where
                attention rows are wanted and its class asks for attention by name.
            tokenizer: a fast transformers tokenizer.
            name: what to call the encoder.
            source: folder or hub id that it came from.
            trained_for: the pooling its embeddings were trained with, if any.
            latents: its latent attention, where it was trained with one.
            training_length: tokens of the longest texts it was trained on, where known.

        Raises:
            ValueError: when the tokenizer gives no character offsets, has no SEP or EOS, or
                its CLS is its SEP.
        """
        super().__init__(model, name, _declared_length(tokenizer))
        self.source = source or name
        self.trained_for = trained_for
        self.latents = latents
        self.training_length = training_length
        self.lock = threading.RLock()
        self._tokenizer_lock = threading.Lock()
        self.tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"encoder {name!r} has a tokenizer without character offsets "
                f"({type(tokenizer).__name__}); choose one with a tokenizer.json."
            )
        # Set once on our own copy and never again: truncation and padding are state inside
        # the tokenizer, and a special token that is spelled in a text has to stay text.
        self._tokenizer = type(backend).from_str(backend.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._unknown_id: int | None = tokenizer.unk_token_id
        self._special_tokens = tuple(sorted({str(t) for t in tokenizer.all_special_tokens}))
        self.special_ids = _special_ids(tokenizer, name)
        self._input_names = frozenset(inspect.signature(model.forward).parameters)

    @classmethod
    def from_pretrained(cls, config: EncoderConfig | str = "default") -> "Encoder":
        """Returns the encoder of a hub id, a local folder, or an offline name.

        The bundled `lmk-mini`, which `default` stands for, and any folder with variants is an
        `EncoderFamily`; `lmk-mini-backbone`, `lmk-mini-cls`, ... are its members by themselves.

        Args:
            config: what to load and where to run it; a string is its name.

        Raises:
            ValueError: when it cannot be had, with what to do about it.
        """
        from lmk_viz.loading import load_model

        config = EncoderConfig(config) if isinstance(config, str) else config
        loaded = load_model(config)
        if loaded.variants:
            from lmk_viz.family import load_family

            return load_family(config.name, loaded)
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=config.name,
            source=loaded.source,
            trained_for=loaded.trained_for,
            latents=loaded.latents,
            training_length=loaded.training_length,
        )

    @property
    def trained_poolings(self) -> frozenset[PoolingMode]:
        """The poolings that it was trained for."""
        return frozenset() if self.trained_for is None else frozenset({self.trained_for})

    def encoder_for(self, mode: PoolingMode) -> "Encoder":
        """Returns the encoder whose states a pooling reads: this one, where there is no family.

        Args:
            mode: the pooling.
        """
        return self

    def row_sources(self, layout: Layout) -> dict[PoolingMode, str]:
        """Returns the name of the encoder that each row of a layout's profile is read from."""
        return {
            mode: self.name
            for mode, positions in (
                (PoolingMode.CLS, layout.cls_positions),
                (PoolingMode.LANDMARK, layout.landmark_positions),
            )
            if len(positions)
        }

    def layers_to_read(self, layout: Layout) -> int:
        """Returns how many layers `attention_profile` goes through for a layout."""
        return self.n_layers

    def with_random_weights(self, seed: int = 0) -> "Encoder":
        """Returns an encoder of the same shape that has learned nothing: a control.

        Args:
            seed: of the weights, which torch's global generator is left out of.
        """
        config = copy.deepcopy(self.model.config)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(seed)
            # The same attention: classes with attention code of their own take no other.
            model = AutoModel.from_config(
                config, dtype=self.dtype, attn_implementation=config._attn_implementation
            )
        model.to(self.device)
        model.eval()
        model.requires_grad_(False)
        return Encoder(model, self.tokenizer, name=f"{self.name}, random weights")

    def facts(self) -> dict[str, Any]:
        """Returns what the encoder is, as plain JSON types."""
        return {
            "name": self.name,
            "class": type(self.model).__name__,
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "layers": self.n_layers,
            "heads": self.n_heads,
            "embedding_dim": self.embedding_dim,
            "parameters": self.n_parameters,
            "memory_bytes": self.memory_bytes,
            "positional_scheme": self.positional_scheme,
            "max_length": self.max_length,
            "hard_limit": self.has_hard_limit,
            "local_layers": [i for i, k in enumerate(self.layer_kinds) if k is LayerKind.LOCAL],
            "window": next((w for w in self.windows if w is not None), None),
            "cls_id": self.special_ids.cls,
            "landmark_id": self.special_ids.landmark,
            "pad_id": self.special_ids.pad,
            "cls_token": self.token_text(self.special_ids.cls),
            "landmark_token": self.token_text(self.special_ids.landmark),
            "trained_for": self.trained_for.value if self.trained_for else None,
            "trained_poolings": [m.value for m in PoolingMode if m in self.trained_poolings],
            "training_length": self.training_length,
        }

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all of it that decides a vector, whatever its name and folder.

        Its weights, config, latent attention and tokenizer, and the kind of device, since an
        accelerator rounds otherwise. Read once, as an encoder never changes after loading.
        """
        found = hashlib.sha256(self.weights_digest.encode())
        found.update(self._tokenizer.to_str().encode())
        found.update(f"{self.special_ids} {self._unknown_id} {self.device.type}".encode())
        if self.latents is not None:
            for name, tensor in sorted(self.latents.state_dict().items()):
                digest_tensor(found, name, tensor)
        return found.hexdigest()

    # Text to layout.

    def token_text(self, token_id: int | None) -> str:
        """Returns a vocabulary entry as the tokenizer writes it."""
        return "" if token_id is None else str(self._tokenizer.id_to_token(token_id))

    def spelled_special_tokens(self, text: str) -> dict[str, int]:
        """Returns the special tokens that a text spells out, with how often; they stay text."""
        return {t: n for t in self._special_tokens if t and (n := text.count(t))}

    def tokenize(self, text: str) -> Tokens:
        """Returns the whole text as tokens, without specials, uncut.

        White space round the text is left out, as in the authors' code: byte-level
        vocabularies have tokens for it.
        """
        core = text.strip()
        shift = len(text) - len(text.lstrip()) if core else 0
        with self._tokenizer_lock:
            encoding = self._tokenizer.encode(core, add_special_tokens=False)
        offsets = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2) + shift
        return Tokens.from_offsets(text, encoding.ids, offsets, unknown_id=self._unknown_id)

    def tokenize_sentences(self, text: str, language: str | None = None) -> Tokens:
        """Returns the text tokenised sentence by sentence, as the authors' code does.

        Ids can differ from those of the whole text, since white space between sentences is
        lost and a sentence begins without the blank before it.
        """
        spans = sentence_spans(text, language)
        with self._tokenizer_lock:
            encodings = self._tokenizer.encode_batch(
                [text[start:end] for start, end in spans], add_special_tokens=False
            )
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        starts: list[int] = []
        for (shift, _), encoding in zip(spans, encodings, strict=True):
            if not encoding.ids:
                continue
            starts.append(len(ids))
            ids.extend(encoding.ids)
            offsets.extend((start + shift, end + shift) for start, end in encoding.offsets)
        return Tokens.from_offsets(text, ids, offsets, starts, self._unknown_id)

    def layout(
        self,
        text: str,
        kind: LayoutKind = LayoutKind.LANDMARK,
        chunking: ChunkingConfig | None = None,
        max_length: int | None = None,
    ) -> Layout:
        """Returns the encoder input for a text.

        Args:
            text: any text; white space round it makes no difference.
            kind: which layout.
            chunking: how to cut; None means the defaults.
            max_length: longest input; None takes the encoder's usable length.

        Raises:
            ValueError: when the limit is under 3 or over what the encoder can take.
        """
        chunking = chunking or ChunkingConfig()
        limit = self.check_length(max_length)
        by_sentence = chunking.mode is ChunkingMode.SENTENCE and kind is not LayoutKind.PLAIN
        tokens = (
            self.tokenize_sentences(text, chunking.language) if by_sentence else self.tokenize(text)
        )
        return build_layout(tokens, self.special_ids, kind, chunking, limit)

    def check_length(self, max_length: int | None) -> int:
        """Returns the length limit to use.

        Raises:
            ValueError: when it is under 3, or over the rows of a learned position table.
        """
        if max_length is None:
            return self.max_length
        if isinstance(max_length, bool) or not isinstance(max_length, int):
            raise TypeError(f"length limit is {max_length!r}; it has to be a whole number.")
        highest = self.max_length if self.has_hard_limit else SENTINEL_LENGTH
        if not MIN_LENGTH <= max_length <= highest:
            raise ValueError(
                f"length limit is {max_length:,}; allowed for {self.name!r}: "
                f"{MIN_LENGTH} to {highest:,} tokens."
            )
        return max_length

    # Layout to states, vectors and rows.

    @torch.inference_mode()
    def token_states(self, layouts: Sequence[Layout]) -> torch.Tensor:
        """Returns last hidden states of right-padded layouts, shape (B, T, D), on the device.

        States at padding mean nothing.
        """
        batch = collate(layouts, self.special_ids.pad)
        return self._forward(batch.input_ids, batch.attention_mask)

    def embed_layouts(
        self,
        layouts: Sequence[Layout],
        poolings: Sequence[PoolingConfig],
        normalize: bool = True,
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.bool_]]]:
        """Returns a vector a layout for each pooling, all from one forward pass.

        Args:
            layouts: one batch, all of the kind that the poolings read.
            poolings: resolved poolings that share a layout kind.
            normalize: scale each vector to length 1.

        Returns:
            For each pooling embeddings, shape (B, D), and whether each fell back to the mean
            over all positions, shape (B,).

        Raises:
            ValueError: when a pooling reads another kind of layout.
        """
        states = self.token_states(layouts)
        vectors, fallbacks = [], []
        shifts = np.zeros(len(layouts), dtype=np.int64)
        for config in poolings:
            reads = [read_positions(layout, config) for layout in layouts]
            mask = torch.from_numpy(pool_mask(reads, shifts, states.shape[1])).to(states.device)
            embeddings = pool(states, mask, config.mode, normalize, self.latents)
            vectors.append(embeddings.cpu().numpy())
            fallbacks.append(np.asarray([read.fell_back for read in reads]))
        return vectors, fallbacks

    def encode(
        self,
        texts: Sequence[str],
        pooling: PoolingConfig | PoolingMode | str = PoolingMode.LANDMARK,
        chunking: ChunkingConfig | None = None,
        max_length: int | None = None,
        normalize: bool = True,
    ) -> NDArray[np.float32]:
        """Returns one vector a text, in order, from one batch.

        For a corpus use `lmk_viz.embedding.embed_documents`, which batches by length.

        Args:
            texts: a few texts.
            pooling: how states become a vector.
            chunking: where landmarks go.
            max_length: longest input; None takes the encoder's usable length.
            normalize: scale each vector to length 1.

        Returns:
            Embeddings, shape (N, D), float32.
        """
        if isinstance(texts, str):
            raise TypeError("texts is one string; give a list of strings.")
        if not len(texts):
            return np.zeros((0, self.embedding_dim), dtype=np.float32)
        chunking = chunking or ChunkingConfig()
        config = (
            pooling if isinstance(pooling, PoolingConfig) else PoolingConfig(PoolingMode(pooling))
        )
        config = resolve(config, chunking)
        self.check_pooling(config.mode)
        kind = POOLINGS[config.mode].layout
        layouts = [self.layout(text, kind, chunking, max_length) for text in texts]
        return self.embed_layouts(layouts, [config], normalize)[0][0]

    def check_pooling(self, mode: PoolingMode) -> None:
        """Raises a ValueError when a pooling cannot be had from this encoder."""
        if POOLINGS[mode].needs_latents and self.latents is None:
            raise ValueError(
                f"{mode.value} needs a layer that is trained with the encoder, and {self.name!r} "
                "has none; choose another pooling, or an encoder trained for this one."
            )
        if mode in (PoolingMode.CLS, PoolingMode.MULTI_CLS) and self.special_ids.cls is None:
            raise ValueError(
                f"{mode.value} needs a CLS token and the tokenizer of {self.name!r} has neither "
                "CLS nor BOS; choose landmark, mean or every_k."
            )

    def attention_profile(
        self,
        layout: Layout,
        config: AttentionConfig | None = None,
        on_layer: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> AttentionProfile:
        """Returns where the CLS row and the landmark rows of a layout look.

        Args:
            layout: any layout.
            config: number of bins, and whether to keep each landmark.
            on_layer: called with the layer number after each layer.
            should_stop: asked after each layer; when it says so, the layers read until then
                are returned.

        Raises:
            ValueError: when the encoder's class does not report its attention.
        """
        config = config or AttentionConfig()
        reducer = RowBins(layout, config, self.device)
        batch = collate([layout], self.special_ids.pad)
        stopped = False
        with (
            torch.inference_mode(),
            capture_rows([reducer.queries], reducer, on_layer, should_stop) as capture,
        ):
            try:
                self._forward(batch.input_ids, batch.attention_mask)
            except CaptureStoppedError:
                stopped = True
        layers = capture.layers_seen
        if not stopped:
            self._check_layers(layers)
        content = layout.token_index >= 0
        return AttentionProfile(
            layer_kinds=self.layer_kinds[:layers],
            windows=self.windows[:layers],
            layers_expected=self.n_layers,
            edges=reducer.edges,
            distance_edges=reducer.distance_edges,
            n_content=layout.n_kept,
            landmark_tokens=np.cumsum(content, dtype=np.int64)[layout.landmark_positions],
            rows=reducer.rows(layers),
            landmark_map=reducer.landmark_map(layers),
        )

    # What a run costs.

    @cached_property
    def speed(self) -> MachineSpeed:
        """How fast this machine runs this model; measured at first use, in about a second."""

        def forward(tokens: int) -> None:
            ids = np.full((1, min(tokens, self.max_length)), self.special_ids.landmark)
            self._forward(ids, np.ones_like(ids))

        return calibrate(forward, self.shape, self.device, self.dtype)

    def forecast(self, tokens: int, rows: int = 0) -> Forecast:
        """Returns the expected seconds and peak memory of one forward.

        Args:
            tokens: input length.
            rows: attention rows captured a layer; 0 for a plain forward.
        """
        return forecast_run(self.shape, self.speed, tokens, rows, TILE_BYTES if rows else 0)

    def rough_seconds(self, tokens: int, rows: int = 0) -> float:
        """Returns seconds on a slow machine, from counting alone."""
        slow = MachineSpeed(SLOW_FLOPS, SLOW_FLOPS)
        return forecast_run(self.shape, slow, tokens, rows).seconds

    def check_memory(self, tokens: int, rows: int = 0, limit_bytes: int | None = None) -> None:
        """Raises a ValueError when a run would not fit, with the longest length that does.

        Args:
            tokens: input length.
            rows: attention rows captured a layer.
            limit_bytes: set by an operator; what is free counts too.
        """
        any_speed = MachineSpeed(1.0, 1.0)

        def plan(length: int) -> Forecast:
            # Shorter texts have fewer landmarks in proportion.
            share = -(-rows * length // max(tokens, 1))
            return forecast_run(self.shape, any_speed, length, share, TILE_BYTES if rows else 0)

        free = free_memory(self.device, limit_bytes)
        check_fits(plan(tokens), lambda length: plan(length).peak_bytes, free)

    @cached_property
    def reports_attention(self) -> bool:
        """Whether the encoder's class lets its attention rows be captured."""
        try:
            self.attention_profile(self.layout("a"), AttentionConfig(bins=1))
        except ValueError:
            return False
        return True

    def _check_layers(self, seen: int) -> None:
        if seen != self.n_layers:
            raise ValueError(
                f"{type(self.model).__name__} reported attention for {seen} of {self.n_layers} "
                "layers: this class computes attention in code of its own, or was not loaded "
                "through Encoder.from_pretrained. Choose an encoder that uses transformers' "
                "attention interface, such as BERT, RoBERTa, ModernBERT, GTE or Qwen3."
            )

    def _forward(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]
    ) -> torch.Tensor:
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(input_ids.copy()).to(self.device),
            "attention_mask": torch.from_numpy(attention_mask.copy()).to(self.device),
            "use_cache": False,
        }
        if inputs["input_ids"].shape[1] > self.max_length and self.has_hard_limit:
            raise ValueError(
                f"input has {inputs['input_ids'].shape[1]} tokens; {self.name!r} takes at most "
                f"{self.max_length}."
            )
        accepted = {name: value for name, value in inputs.items() if name in self._input_names}
        with self.lock, torch.inference_mode():
            states: torch.Tensor = self.model(**accepted).last_hidden_state
        return states


def _special_ids(tokenizer: Any, name: str) -> SpecialIds:
    """Returns CLS, landmark and pad ids, from the tokenizer alone.

    Model configs cannot be trusted here: mmBERT's names one id for both CLS and SEP.
    """
    cls = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    landmark = (
        tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    )
    if landmark is None:
        raise ValueError(
            f"the tokenizer of encoder {name!r} has neither SEP nor EOS, so there is no "
            "landmark token; choose another encoder, or set one in its tokenizer_config.json."
        )
    if cls == landmark:
        raise ValueError(
            f"the tokenizer of encoder {name!r} uses id {cls} both as CLS and as landmark "
            "(SEP or EOS), so the two could not be told apart; set different cls_token and "
            "sep_token in its tokenizer_config.json."
        )
    # Masks are explicit, so a missing pad needs no stand-in with a meaning of its own.
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    return SpecialIds(cls=cls, landmark=int(landmark), pad=int(pad))


def _declared_length(tokenizer: Any) -> int:
    return int(min(tokenizer.model_max_length or 0, 2 * SENTINEL_LENGTH))
