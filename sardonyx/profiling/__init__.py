"""Profiles of runs: what was noted, as tables for people and as files for tools."""
