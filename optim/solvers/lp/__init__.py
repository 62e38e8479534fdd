"""Linear and mixed-integer programmes as such: solvers that know no problem's words."""
