"""Retrieval: data sets, metrics, evaluation of poolings."""
