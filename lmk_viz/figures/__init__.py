"""Figures: functions from results to Plotly figures; the only place that knows Plotly."""
