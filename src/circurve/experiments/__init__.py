"""Studies of the paper: specifications as data, a runner that resumes, tables and figures made from its records."""
