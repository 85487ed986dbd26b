"""Small LLVM IR texts whose `main` computes something known from a 64-bit integer."""

from sardonyx.llvm.compile import FUNCTION_ATTRIBUTES

VECTOR = f"""
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %t = trunc i64 %x to i32
  %a = insertelement <4 x i32> poison, i32 %t, i32 0
  %b = shufflevector <4 x i32> %a, <4 x i32> poison, <4 x i32> zeroinitializer
  %c = mul <4 x i32> %b, <i32 3, i32 50, i32 700, i32 11000>
  %d = add <4 x i32> %c, <i32 1, i32 2, i32 3, i32 4>
  %e = call i32 @llvm.vector.reduce.add.v4i32(<4 x i32> %d)
  %f = sext i32 %e to i64
  ret i64 %f
}}
declare i32 @llvm.vector.reduce.add.v4i32(<4 x i32>)
"""
CALLS = f"""
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %zero = icmp sle i64 %x, 0
  br i1 %zero, label %done, label %more
done:
  ret i64 1
more:
  %y = sub i64 %x, 1
  %z = call i64 @other(i64 %y)
  %r = add i64 %z, %x
  ret i64 %r
}}
define i64 @other(i64 %x) noinline {FUNCTION_ATTRIBUTES} {{
  %z = call i64 @main(i64 %x)
  %r = mul i64 %z, 2
  ret i64 %r
}}
"""
CASES = "\n".join(f"c{i}:\n  %v{i} = mul i64 %x, {i * i + 7}\n  br label %out" for i in range(12))
SWITCH = f"""
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  switch i64 %x, label %none [{" ".join(f"i64 {i}, label %c{i}" for i in range(12))}]
none:
  br label %out
{CASES}
out:
  %v = phi i64 [-1, %none], {", ".join(f"[%v{i}, %c{i}]" for i in range(12))}
  %w = xor i64 %v, 5
  ret i64 %w
}}
"""
TABLE = f"""
@table = constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %i = and i64 %x, 3
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}}
"""
ADDRESS = f"""
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %odd = trunc i64 %x to i1
  %f = select i1 %odd, ptr @plus, ptr @minus
  %r = call i64 %f(i64 %x)
  ret i64 %r
}}
define i64 @plus(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %r = add i64 %x, 100
  ret i64 %r
}}
define i64 @minus(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %r = sub i64 %x, 100
  ret i64 %r
}}
"""


def calls(x: int) -> int:
    return 1 if x <= 0 else 2 * calls(x - 1) + x


#: name -> text, what `main` computes.
PROGRAMS = {
    "constant pool": (VECTOR, lambda x: 11753 * x + 10),
    "mutual calls": (CALLS, calls),
    "switch": (SWITCH, lambda x: (x * (x * x + 7) if 0 <= x < 12 else -1) ^ 5),
    "table": (TABLE, lambda x: 10 * (x & 3) + 10),
    "function address": (ADDRESS, lambda x: x + 100 if x & 1 else x - 100),
}
INPUTS = (0, 1, 5, 11, 12)
