"""Serves a profile on this machine to the Firefox Profiler, with symbols, source and assembly.

`local` is the HTTP side: who may ask, and how much. `api` answers, with `modules` (which files the profile names) and
`sources` (which source files may be read).
"""
