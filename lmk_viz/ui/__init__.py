"""The app's parts: the only place that knows Streamlit's state and caches."""
