"""Models with branches, loops, sizes from data, strings and sequences, as text."""

_ON = "on = Constant<value = bool {1}>()"

CONTROL = {
    "if": """g (float[N,4] x, bool c) => (float[A,B] y) { y = If(c)
        <then_branch = t () => (float[A,B] a) { a = Add(x, x) },
         else_branch = e () => (float[A,B] b) { b = Concat<axis=0>(x, x) }> }""",
    "loop": f"""g (float[N] x, int64 k) => (float[A] y, float[T,A] z) {{ {_ON}
        y, z = Loop(k, on, x) <body = b (int64 i, bool ci, float[N] h) =>
            (bool co, float[N] ho, float[N] so) {{
            co = Identity(ci) ho = Add(h, h) so = Exp(h) }}> }}""",
    "growing": f"""g (float[N] x, int64 k) => (float[A] y) {{ {_ON}
        y = Loop(k, on, x) <body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho) {{
            co = Identity(ci) ho = Concat<axis=0>(h, h) }}> }}""",
    "nested": f"""g (float[N] x, int64 k, bool c) => (float[A] y) {{ {_ON}
        y = Loop(k, on, x) <body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho) {{
            co = Identity(ci) ho = If(c)
            <then_branch = t () => (float[N] a) {{ a = Loop(k, on, h) <body = d
                (int64 j, bool cj, float[N] g) => (bool cp, float[N] gp) {{
                cp = Identity(cj) gp = Mul(g, x) }}> }},
             else_branch = e () => (float[N] q) {{ q = Neg(h) }}> }}> }}""",
    "scan": """g (float[N] s, float[T,N] x) => (float[N] f, float[T,N] y) { f, y = Scan(s, x)
        <num_scan_inputs = 1, body = b (float[N] h, float[N] e) => (float[N] ho, float[N] o) {
            ho = Add(h, e) o = Tanh(ho) }> }""",
    "sizes": """g (float[N] x, int64[2] s) => (float[A,B] y, int64[1,C] n) {
        r = Reshape(x, s) n0 = NonZero(x) n = Identity(n0) z = Shape(r)
        one = Constant<value_float=1.5>() e = Expand(one, z) y = Add(r, e) }""",
    "range": """g (int64 n, float[M] x) => (float[A] y) { o = Constant<value_int=0>()
        d = Constant<value_int=1>() r = Range(o, n, d) f = Cast<to=1>(r) c = CumSum(f, o)
        t = ReduceSum(x) y = Add(c, t) }""",
    "select": """g (float[N,4] x, bool[N] c, int64[1] k) =>
        (float[A,4] y, float[B,C] v, int64[B,C] p) {
        y = Compress<axis=0>(x, c) v, p = TopK<axis=0>(x, k) }""",
    "strings": """g (string[N] x) => (string[A] y, int64[B] n) {
        y = StringNormalizer<case_change_action="UPPER">(x) u, a, b, n = Unique(x) }""",
    "sequence": """g (float[N,4] x) => (float[A,B] y) { s = SplitToSequence<axis=0>(x)
        i = Constant<value_int=-1>() e = SequenceAt(s, i) t = SequenceInsert(s, e)
        y = ConcatFromSequence<axis=0>(t) }""",
    "recurrent": """g (float[T,2,3] x, float[1,16,3] w, float[1,16,4] r) => (float[T,1,2,4] y) {
        y = LSTM<hidden_size=4>(x, w, r) }""",
    "quantised": """g (float[N,8] x, float s, uint8 z) => (float[N,8] y) {
        q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
    "pictures": """g (float[1,2,H,W] x, float[4] s) => (float[A,B,C,D] y) {
        y = Resize<mode="linear">(x, , s) }""",
    "suppression": """g (float[1,N,4] b, float[1,1,N] s, int64 m) => (int64[K,3] y) {
        t = Constant<value_float=0.5>() y = NonMaxSuppression(b, s, m, t) }""",
}
