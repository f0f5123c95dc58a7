"""As `study-forecast` measures, on shapes that were recorded after the model was frozen."""

from bench.study_forecast import measure

__all__ = ["measure"]
