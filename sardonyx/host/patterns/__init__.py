"""Regular expressions in RE2's syntax, whose time is bounded by the text's length.

Python's `re` searches with backtracking: some patterns, even short ones, take it exponential time.
RE2, which the operators' standards name, runs automata; so does this. `syntax` reads a pattern,
`classes` knows characters, `automaton` follows all ways through a pattern at once and remembers
where each character led, and `pattern` matches texts.

Of RE2's syntax `\\C` (one byte) and scripts (`\\p{Greek}`) are missing; general categories
(`\\p{Lu}`) are there.

Entry point: `pattern`. Read first: `syntax.py`, `automaton.py` and `pattern.py`.
"""
