"""See, measure and teach how an encoder's pooling decides what a document's vector remembers.

Submodules are imported by name (`from lmk_viz.encoder import Encoder`), so that importing
the package costs nothing and never loads torch, streamlit or plotly by itself.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
