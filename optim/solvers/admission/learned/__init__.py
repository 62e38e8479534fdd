"""Admission at prices learned from earlier days.

The forecast, its prices as posted, how promises are kept while schedules change, prices found anew for what is left, the
start without a history, and the guard that bounds the damage of a wrong forecast.
"""
