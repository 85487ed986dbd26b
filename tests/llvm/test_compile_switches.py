from sardonyx.llvm.compile import AS_WRITTEN, compile_text
from sardonyx.targets.target import host_target

# Sums of every third element, up to an index: LLVM would step a pointer instead.
LOOP = """
define i64 @f(ptr %p, i64 %n, i64 %m) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %sum = phi i64 [0, %entry], [%more, %loop]
  %at = mul i64 %i, %m
  %a = getelementptr i64, ptr %p, i64 %at
  %x = load i64, ptr %a
  %more = add i64 %sum, %x
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %done
done:
  ret i64 %more
}
"""


def test_how_loops_step_is_a_matter_of_each_text():
    target = host_target()
    chosen = compile_text(LOOP, target)
    written = compile_text(AS_WRITTEN + LOOP, target)
    assert written != chosen
    assert compile_text(LOOP, target) == chosen
    assert compile_text(AS_WRITTEN + LOOP, target) == written
