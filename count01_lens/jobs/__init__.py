"""Many jobs on the cores of this machine or on a cluster; knows nothing but `common`."""
