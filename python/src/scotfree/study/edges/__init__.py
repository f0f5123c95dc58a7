"""Two data sets, edge by edge: what is slower outside handlers or in them, what fails, and where from."""
