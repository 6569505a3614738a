"""How well the models do beside others' on public data: `python -m studies imputation`, `… forecasts`."""
