"""What to look for on the position page, and what its probes do not prove."""

import streamlit as st

__all__ = ["TEACHING", "show_teaching"]

TEACHING = (
    "- **How CLS can show a bias**: a needle's cosine that falls with depth, influence that lies "
    "on the first chunks, a first tenth that is closest to the whole. It shows most on texts "
    "longer than those it was trained on; *Length* draws that. **Where it need not show**: on "
    "short texts, in ranks among documents that suffer alike, and in an encoder whose training "
    "data had its evidence everywhere.",
    "- **The direction of the bias follows the training data as much as the pooling.** Encoders "
    "trained on passages whose answer comes first come to prefer the start; the same models "
    "trained on evidence at the end came to prefer the end (arXiv 2605.26578). Leaving sentences "
    "out moves the vectors of common encoders most at the start (2412.15241), and encoders trained "
    "for retrieval catch the start of a long document best (2404.04163). A slope seen here is "
    "that of this encoder, not of a pooling as such.",
    "- **Our own two by two**: CLS and landmark variants trained with the evidence anywhere and "
    "with it at the start (`python -m lmk_viz recipe --evidence start`), forty needles. At the "
    "training length of 256 tokens the data decide: the slope goes from −.005 to −.076 for CLS, "
    "from +.004 to −.085 for landmark. At 1,024 tokens the pooling decides: −.016 and −.021 for "
    "CLS, −.002 and −.007 for landmark. Intervals stand in the README; one seed.",
    "- Compare poolings by shape, not by level: each has a space of its own, and in some all "
    "vectors are close to each other. The dotted lines are the controls: questions of other "
    "needles, a neutral filler, unrelated text; every k-th token is spread out as landmarks are, "
    "without a token of its own.",
    "- **Attention is not influence.** A part can be looked at and change little, or be read "
    "through other tokens and change much.",
    "- Where two intervals overlap, this run cannot tell the poolings apart. PSI is never below "
    "zero, so noise alone gives a small one; read it beside the slope. Published PSIs are of "
    "retrieval scores, and one of cosines is not comparable with them.",
    "- One filler is one text: its own words lie at fixed depths. More fillers, or another one, "
    "show how much of a curve is theirs.",
)


def show_teaching() -> None:
    """Draws what to look for, and what it does not prove."""
    with st.expander("What to look for, and what this does not prove", icon=":material/school:"):
        st.markdown("\n".join(TEACHING))
