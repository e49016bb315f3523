"""Shared pickers: encoder, document, chunking. Each draws widgets and returns a setting."""

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lmk_viz.config import ChunkingConfig, ChunkingMode, EncoderConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.landmarks import MIN_LENGTH
from lmk_viz.presets import PRESETS, canonical_name, find_preset, member_name
from lmk_viz.ui import cache, state
from lmk_viz.ui.limits import Limits
from lmk_viz.ui.messages import show_error, stop_with
from lmk_viz.ui.sources import pick_document
from lmk_viz.ui.text import escape_markdown

__all__ = ["Inputs", "available_poolings", "offered_encoders", "pick_inputs"]

OTHER_ENCODER = "another"
MODE_NAMES = {
    ChunkingMode.FIXED: "Fixed",
    ChunkingMode.VARIABLE: "Variable",
    ChunkingMode.SENTENCE: "Sentence",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What every page works on."""

    encoder: EncoderConfig
    document: Document
    chunking: ChunkingConfig
    max_length: int


def read_limits() -> Limits:
    """Returns the operator's limits, or stops the page with what is wrong with them."""
    try:
        return Limits.from_environment()
    except ValueError as error:
        show_error(error)
        st.stop()


def offered_encoders(limits: Limits) -> list[str]:
    """Returns the names to choose from: the operator's, else all presets, the family first."""
    if limits.encoders:
        return list(dict.fromkeys(map(canonical_name, limits.encoders)))
    return [preset.name for preset in PRESETS]


def available_poolings(encoder: Any) -> tuple[PoolingMode, ...]:
    """Returns the poolings that can be had from an encoder.

    Latent attention is a layer of its own that most encoders have not got.
    """

    def is_there(mode: PoolingMode) -> bool:
        try:
            encoder.check_pooling(mode)
        except ValueError:
            return False
        return True

    return tuple(mode for mode in PoolingMode if is_there(mode))


def pick_encoder(limits: Limits, place: DeltaGenerator) -> tuple[EncoderConfig, Any]:
    """Draws the encoder picker and returns the setting and the loaded encoder.

    Args:
        limits: of the operator.
        place: for messages; a narrow screen hides the side bar and all that is said in it.
    """
    names = offered_encoders(limits)
    chosen = state.ENCODER.get()
    is_listed = chosen in names
    if not is_listed and limits.encoders:
        if chosen != state.ENCODER.default:  # Nobody asked for the default.
            with place:
                show_error(f"Encoder {chosen!r} is not offered here; {names[0]!r} is used.")
        state.ENCODER.set(names[0])
        chosen, is_listed = names[0], True
    options = names if limits.encoders else [*names, OTHER_ENCODER]

    def title(name: str) -> str:
        preset = find_preset(name)
        if name == OTHER_ENCODER:
            return "Another: hub id or folder"
        return preset.title if preset else name

    key = "_shared.encoder_list"
    st.session_state[key] = chosen if is_listed else OTHER_ENCODER

    def choose() -> None:
        picked = st.session_state[key]
        state.ENCODER.set("" if picked == OTHER_ENCODER else picked)

    picked = st.selectbox("Encoder", options, format_func=title, key=key, on_change=choose)
    if picked == OTHER_ENCODER:
        st.text_input(
            "Hub id or folder",
            placeholder="answerdotai/ModernBERT-base",
            max_chars=512,
            **state.ENCODER.widget(),
        )
    if not state.ENCODER.get():
        with place:
            stop_with("Name an encoder in the side bar: a hub id, or a local folder.")
    try:
        config = _pick_backbone(EncoderConfig(state.ENCODER.get(), device=limits.device))
        encoder = cache.get_encoder(config)
    except ValueError as error:
        with place:
            show_error(error)
            st.caption("Nothing else is lost: choose another encoder in the side bar.")
        st.stop()
    return config, encoder


def _pick_backbone(config: EncoderConfig) -> EncoderConfig:
    """Draws a family's switch between its variants and its backbone; returns what to load."""
    if not cache.is_family(config.name):
        return config
    st.toggle(
        "One backbone for all poolings",
        help="Off: each pooling is read from the variant trained for it. On: all from the one "
        "backbone, to see what a pooling does that an encoder was not trained for.",
        **state.ONE_BACKBONE.widget(),
    )
    return replace(config, name=member_name(config.name)) if state.ONE_BACKBONE.get() else config


def describe_encoder(encoder: Any) -> None:
    """Draws what the loaded encoder is."""
    facts = encoder.facts()
    variants = facts.get("variants", [])
    trained = ", ".join(facts["trained_poolings"])
    length = facts["training_length"]
    window = (
        f", {len(facts['local_layers'])} local of ±{facts['window']}" if facts["window"] else ""
    )
    soft = "usable to" if length else "trained for"
    limit = "hard limit" if facts["hard_limit"] else soft
    if variants:
        training = f"family of {len(variants)} variants, one each for {', '.join(variants)}"
    else:
        training = f"trained for {trained} pooling" if trained else "trained for no pooling"
    training += f", on texts of up to {length:,} tokens" if length else ""
    st.caption(
        f"{facts['device']}, {facts['dtype']} · {facts['parameters'] / 1e6:.1f} M parameters, "
        f"{facts['memory_bytes'] / 2**20:.0f} MiB · {facts['layers']} layers{window} · "
        f"{facts['positional_scheme']} positions, {limit} {facts['max_length']:,} tokens · "
        f"CLS {escape_markdown(facts['cls_token'] or 'none')}, landmark "
        f"{escape_markdown(facts['landmark_token'])} · {training}"
    )


def pick_chunking(place: DeltaGenerator) -> ChunkingConfig:
    """Draws the chunking controls and returns the setting; messages go to the place."""
    mode = st.segmented_control(
        "Chunking",
        list(ChunkingMode),
        format_func=MODE_NAMES.__getitem__,
        required=True,
        **state.MODE.widget(),
    )
    match mode:
        case ChunkingMode.VARIABLE:
            sizes = st.multiselect(
                "Granularities to draw from",
                sorted({8, 16, 32, 64, 128, 256, 512, *state.GRANULARITIES.get()}),
                help="One is drawn for the whole text, or for every chunk.",
                **state.GRANULARITIES.widget(),
            )
            if not sizes:
                with place:
                    stop_with("Choose at least one granularity to draw from in the side bar.")
            st.toggle(
                "Draw for every chunk",
                help="As in the authors' pre-training; off: once a text, as in fine-tuning.",
                **state.PER_CHUNK.widget(),
            )
            st.number_input("Seed of the draw", 0, 2**32 - 1, step=1, **state.SEED.widget())
        case ChunkingMode.SENTENCE:
            st.text_input(
                "Language (ISO 639)",
                placeholder="guessed from the script",
                max_chars=12,
                **state.LANGUAGE.widget(),
            )
            st.number_input(
                "Longest sentence (tokens)",
                1,
                state.MAX_SENTENCE_CAP,
                step=16,
                **state.SENTENCE_CAP.widget(),
            )
        case _:
            st.number_input(
                "Granularity (tokens a chunk)",
                1,
                1_000_000,
                step=8,
                help="A landmark stands after every so many tokens.",
                **state.GRANULARITY.widget(),
            )
    st.toggle(
        "Close the tail",
        help="When the length limit cuts the text, the last chunk gets its landmark at the cost "
        "of content. Off: as in the authors' code, content behind the last landmark has none.",
        **state.CLOSE_TAIL.widget(),
    )
    # What only another mode reads, and nobody can mend in this one, must not end the page: an
    # emptied list of sizes, or a language that is none.
    language = state.LANGUAGE.get().strip() if mode is ChunkingMode.SENTENCE else ""
    try:
        return ChunkingConfig(
            mode=state.MODE.get(),
            granularity=state.GRANULARITY.get(),
            granularities=state.GRANULARITIES.get() or state.GRANULARITIES.default,
            per_chunk=state.PER_CHUNK.get(),
            seed=state.SEED.get(),
            language=language or None,
            sentence_cap=state.SENTENCE_CAP.get(),
            close_tail=state.CLOSE_TAIL.get(),
        )
    except (ValueError, TypeError) as error:
        with place:
            show_error(error)
        st.stop()


def pick_max_length(encoder: Any, limits: Limits) -> int:
    """Draws the length limit and returns the one to use."""
    hard = encoder.max_length if encoder.has_hard_limit else limits.max_length
    highest = min(hard, limits.max_length)
    wanted = st.number_input(
        "Length limit (tokens, 0: the encoder's)",
        0,
        1_000_000,
        step=64,
        help=f"Longer input is cut. This encoder: {encoder.max_length:,}.",
        **state.MAX_LENGTH.widget(),
    )
    usable = int(encoder.max_length) if not wanted else max(MIN_LENGTH, int(wanted))
    used = min(usable, highest)
    if wanted and used != wanted:
        st.caption(f":orange[{wanted:,} cannot be used here; {used:,} is taken.]")
    return used


def pick_inputs(
    choices: tuple[state.Choice[Any], ...] = (), with_document: bool = True
) -> tuple[Inputs, Any]:
    """Draws the side bar and returns what every page works on, with the loaded encoder.

    Args:
        choices: what the page adds to the URL.
        with_document: whether the page works on a single document; without, the choice of
            one is kept for the other pages, and an empty document is returned.
    """
    state.sync_url((*state.SHARED, *choices))
    limits = read_limits()
    place = st.container()
    with st.sidebar:
        config, encoder = pick_encoder(limits, place)
        describe_encoder(encoder)
    document = pick_document(cache.get_samples()) if with_document else Document("", "", "")
    with st.sidebar:
        chunking = pick_chunking(place)
        max_length = pick_max_length(encoder, limits)
    return Inputs(config, document, chunking, max_length), encoder
