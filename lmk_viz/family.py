"""A family of encoders: one backbone, and for each pooling a variant that was trained for it.

A pooling that an encoder was not trained for shows little about that pooling. Here each is read
from its own variant, and everything that takes an encoder takes a family in its place. Vectors
of two variants are not one space: they are compared within a variant.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmk_viz.adapters import copy_for_adapter, load_latents, merge_adapter, read_settings
from lmk_viz.attention_profile import AttentionProfile, ProfileRow
from lmk_viz.config import AttentionConfig, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.forecast import Forecast
from lmk_viz.landmarks import Layout, build_layout
from lmk_viz.latent_attention import LatentAttention, LatentConfig
from lmk_viz.loading import LoadedModel
from lmk_viz.pooling import POOLINGS
from lmk_viz.presets import member_name

__all__ = ["EncoderFamily", "load_family"]


class EncoderFamily(Encoder):
    """An encoder, its backbone, with a variant for each pooling that it was trained for.

    Variants are loaded at first use and share the word embeddings with the backbone. Poolings
    without a variant read the backbone. `trained_for` is None, since no single one is meant.
    Token states are the backbone's; those that a pooling reads are its variant's.
    """

    def __init__(
        self,
        backbone: Encoder,
        loaders: Mapping[PoolingMode, Callable[[], Encoder]],
        name: str,
        source: str | None = None,
        training_length: int | None = None,
        is_trained: bool = True,
    ) -> None:
        """Takes the backbone and what loads each variant.

        Args:
            backbone: an encoder by itself; what the family says of its shape is said of it.
            loaders: of the variants; each is called once at most.
            name: what to call the family.
            source: folder that it came from.
            training_length: tokens of the longest texts that the variants were trained on.
            is_trained: whether the variants were trained for their poolings; not so in the
                control with random weights.
        """
        super().__init__(backbone.model, backbone.tokenizer, name, source)
        self.training_length = training_length
        self.backbone = backbone
        self.lock = backbone.lock  # One model, one lock.
        self.variants = frozenset(loaders)
        self._is_trained = is_trained
        self._loaders = dict(loaders)
        self._loaded: dict[PoolingMode, Encoder] = {}
        self._loading = threading.RLock()

    @property
    def trained_poolings(self) -> frozenset[PoolingMode]:
        """The poolings that a member was trained for and is read for."""
        return self.backbone.trained_poolings | (self.variants if self._is_trained else frozenset())

    def encoder_for(self, mode: PoolingMode) -> Encoder:
        """Returns the variant of a pooling, loading it at first use; else the backbone.

        Raises:
            ValueError: when the variant's files are damaged.
        """
        if mode not in self.variants:
            return self.backbone
        with self._loading:
            if mode not in self._loaded:
                self._loaded[mode] = self._loaders[mode]()
            return self._loaded[mode]

    def check_pooling(self, mode: PoolingMode) -> None:
        """Raises a ValueError when a pooling cannot be had; loads no variant to find out."""
        if not (POOLINGS[mode].needs_latents and mode in self.variants):
            super().check_pooling(mode)

    def embed_layouts(
        self,
        layouts: Sequence[Layout],
        poolings: Sequence[PoolingConfig],
        normalize: bool = True,
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.bool_]]]:
        """Returns a vector a layout for each pooling, from one forward pass a variant.

        Arguments, results and errors are those of `Encoder.embed_layouts`.
        """
        vectors: list[NDArray[np.float32]] = []
        fallbacks: list[NDArray[np.bool_]] = []
        for config in poolings:
            found, flags = self.encoder_for(config.mode).embed_layouts(layouts, [config], normalize)
            vectors += found
            fallbacks += flags
        return vectors, fallbacks

    def with_random_weights(self, seed: int = 0) -> "EncoderFamily":
        """Returns a family of the same shape that has learned nothing: a control.

        All its members have the same weights; a latent attention has those it starts with.

        Args:
            seed: of the weights, which torch's global generator is left out of.
        """
        control = self.backbone.with_random_weights(seed)

        def with_latents() -> Encoder:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                torch.manual_seed(seed)
                latents = LatentAttention(LatentConfig.for_hidden(self.embedding_dim))
            latents.to(self.device).eval().requires_grad_(False)
            member = Encoder(control.model, control.tokenizer, control.name, latents=latents)
            member.lock = control.lock
            return member

        def plain() -> Encoder:
            return control

        return EncoderFamily(
            control,
            {m: with_latents if POOLINGS[m].needs_latents else plain for m in self.variants},
            f"{self.name}, random weights",
            is_trained=False,
        )

    def facts(self) -> dict[str, Any]:
        """Returns what the family is, as plain JSON types; shapes are those of one member."""
        return {
            **super().facts(),
            "variants": [mode.value for mode in PoolingMode if mode in self.variants],
        }

    @property
    def memory_bytes(self) -> int:
        """Memory that weights and buffers take now; what members share counts once."""
        with self._loading:
            members = (self.backbone, *self._loaded.values())
        sizes = {}
        for member in members:
            for tensor in (*member.model.parameters(), *member.model.buffers()):
                sizes[id(tensor)] = tensor.numel() * tensor.element_size()
        return sum(sizes.values())

    @property
    def reports_attention(self) -> bool:
        """Whether the class of its members lets its attention rows be captured."""
        return self.backbone.reports_attention

    # Attention: each row from the variant whose vector is read there.

    def row_sources(self, layout: Layout) -> dict[PoolingMode, str]:
        """Returns the name of the member that each row of a layout's profile is read from."""
        names = {
            mode: member_name(self.name, mode) if mode in self.variants else self.backbone.name
            for mode in super().row_sources(layout)
        }
        if layout.kind is LayoutKind.MULTI_CLS:
            names = dict.fromkeys(names, self.backbone.name)
        return names

    def layers_to_read(self, layout: Layout) -> int:
        """Returns how many layers `attention_profile` goes through, over all its passes."""
        return self.n_layers * (2 if self._takes_both(layout) else 1)

    def attention_profile(
        self,
        layout: Layout,
        config: AttentionConfig | None = None,
        on_layer: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> AttentionProfile:
        """Returns where the CLS row and the landmark rows of a text look, each in its variant.

        The CLS row is that of the `cls` variant on `[CLS] text [SEP]`, the input of CLS pooling,
        with the very tokens that the layout kept; the landmark rows are those of the `landmark`
        variant on the layout itself. That takes two passes, the one for CLS first.

        Args:
            layout: any layout.
            config: number of bins, and whether to keep each landmark.
            on_layer: called with the number of layers done before, over both passes.
            should_stop: asked after each layer. Stopped in the first pass, the profile has the
                CLS row alone; stopped in the second, it has the layers that both have.

        Raises:
            ValueError: when the encoder's class does not report its attention.
        """
        if layout.kind is LayoutKind.MULTI_CLS:
            return self.backbone.attention_profile(layout, config, on_layer, should_stop)
        plain = layout if layout.kind is LayoutKind.PLAIN else self._plain(layout)
        first = self.encoder_for(PoolingMode.CLS).attention_profile(
            plain, config, on_layer, should_stop
        )
        if first.is_partial or not self._takes_both(layout):
            return first

        def on_later_layer(layer: int) -> None:
            if on_layer is not None:
                on_layer(self.n_layers + layer)

        second = self.encoder_for(PoolingMode.LANDMARK).attention_profile(
            layout, config, on_later_layer, should_stop
        )
        layers = second.n_layers
        row = _widened(_first_layers(first.rows[PoolingMode.CLS], layers), second)
        return replace(second, rows={**second.rows, PoolingMode.CLS: row})

    def _takes_both(self, layout: Layout) -> bool:
        return layout.kind is LayoutKind.LANDMARK and layout.n_landmarks > 0

    def _plain(self, layout: Layout) -> Layout:
        """Returns `[CLS] text [SEP]` of the tokens that a landmark layout kept."""
        length = layout.n_kept + 2
        if self.has_hard_limit:
            # Longer by the SEP only where no landmark had room.
            length = min(length, self.max_length)
        return build_layout(layout.tokens, self.special_ids, LayoutKind.PLAIN, None, length)

    def forecast(self, tokens: int, rows: int = 0) -> Forecast:
        """Returns the expected seconds and peak memory of one run over a text.

        Args:
            tokens: input length.
            rows: attention rows captured a layer; with more than the CLS row there are two
                passes. 0 for a plain forward, of which each pooling takes one.
        """
        one = super().forecast(tokens, rows)
        if rows < 2:
            return one
        return replace(one, seconds=one.seconds + super().forecast(tokens, 1).seconds)

    def rough_seconds(self, tokens: int, rows: int = 0) -> float:
        """Returns seconds on a slow machine, from counting alone; passes as in `forecast`."""
        seconds = super().rough_seconds(tokens, rows)
        return seconds if rows < 2 else seconds + super().rough_seconds(tokens, 1)


def load_family(name: str, loaded: LoadedModel) -> EncoderFamily:
    """Returns the family of a loaded backbone; its variants are loaded when they are asked for.

    Args:
        name: of the family.
        loaded: its backbone, with the folder of each variant.

    Raises:
        ValueError: when what a variant says of itself is missing or does not fit its folder.
    """
    backbone = Encoder(
        loaded.model,
        loaded.tokenizer,
        name=member_name(name),
        source=loaded.source,
        trained_for=loaded.trained_for,
        latents=loaded.latents,
        training_length=loaded.training_length,
    )
    lengths = []
    for mode, folder in loaded.variants.items():
        try:
            settings = read_settings(folder)
        except ValueError as error:
            raise ValueError(f"encoder {name!r}, variant {mode.value}: {error}") from error
        if settings is None or settings.trained_for is not mode:
            said = "nothing" if settings is None else settings.trained_for.value
            raise ValueError(
                f"encoder {name!r} has a variant {mode.value} that says it was trained for {said}."
            )
        lengths += [settings.training_length] if settings.training_length else []
    return EncoderFamily(
        backbone,
        {m: partial(_load_variant, backbone, name, m, f) for m, f in loaded.variants.items()},
        name,
        loaded.source,
        max(lengths, default=None),
    )


def _load_variant(backbone: Encoder, family: str, mode: PoolingMode, folder: Path) -> Encoder:
    name = member_name(family, mode)
    try:
        settings = read_settings(folder)
        model = merge_adapter(copy_for_adapter(backbone.model), folder)
        latents = None
        if settings is not None and settings.latents is not None:
            latents = load_latents(
                folder, settings.latents, backbone.embedding_dim, backbone.device
            )
    # As in loading: damaged files come as any class.
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"encoder {name!r} could not be loaded: {text[:300]}") from error
    return Encoder(
        model,
        backbone.tokenizer,
        name=name,
        source=str(folder),
        trained_for=mode,
        latents=latents,
        training_length=settings.training_length if settings else None,
    )


def _first_layers(row: ProfileRow, layers: int) -> ProfileRow:
    """Returns a row in its first layers."""
    return ProfileRow(
        mass=row.mass[:layers],
        special=row.special[:layers],
        scalars=row.scalars[:layers],
        distance_mass=row.distance_mass[:layers],
        distance_keys=row.distance_keys,
    )


def _widened(row: ProfileRow, profile: AttentionProfile) -> ProfileRow:
    """Returns a row of a shorter input with the distance bins of a longer one.

    Bins of a shorter input are the middle ones of a longer one, and nothing lies outside.
    """
    wider = len(profile.distance_edges) - 1 - len(row.distance_keys)
    sides = (wider // 2, wider // 2)
    return row._replace(
        distance_mass=np.pad(row.distance_mass, ((0, 0), (0, 0), sides)),
        distance_keys=np.pad(row.distance_keys, sides),
    )
