"""Probes: what a document vector depends on, by position."""

from lmk_viz.probes.segments import SegmentCosines, segment_cosines

__all__ = ["SegmentCosines", "segment_cosines"]
