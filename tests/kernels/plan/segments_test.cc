// Packed sequences with consecutive positions from one to the next: an encoding
// must cover the span of a segment, not of the whole row.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// Two sequences in a row, at positions first, first + 1, ...
Call PackedCall(int64_t left, int64_t right, int64_t first) {
  const int64_t length = left + right;
  Call call;
  call.q = RandomTensor({1, 4, length, 16}, 1);
  call.k = RandomTensor({1, 2, length, 16}, 2);
  call.v = RandomTensor({1, 2, length, 16}, 3);
  for (int64_t i = 0; i < length; ++i) {
    call.q_pos.push_back(first + i);
    call.q_seg.push_back(i < left ? 7 : 3);
  }
  call.k_pos = call.q_pos;
  call.k_seg = call.q_seg;
  return call;
}

// Encodings by offset for 40 tokens, which is less than both sequences have
// together.
TEST(SegmentsTest, TablesCoverTheirSegmentsAlone) {
  constexpr int64_t kLongest = 40;
  OnEveryTarget([] {
    for (const char* name :
         {"transformer-xl", "shaw", "t5", "alibi", "kerple", "deberta"}) {
      for (bool causal : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name << ", causal " << causal);
        Call call = PackedCall(kLongest, 23, 0);
        call.options.causal = causal;
        Lower(*FindEncoding(name).example(
                  {.heads = 4, .head_dim = 16, .length = kLongest}),
              call);
        call = AsFloat(call);
        ExpectForwardEqualsReference(call);
        ExpectBackwardEqualsReference(call, 5);
      }
    }
  });
}

// A sequence does not depend on the one that it is packed with.
TEST(SegmentsTest, PackedEqualsAlone) {
  constexpr int64_t kLeft = 40, kRight = 23;
  const auto encoding =
      FindEncoding("transformer-xl")
          .example({.heads = 4, .head_dim = 16, .length = kLeft});
  Call packed = AsFloat(PackedCall(kLeft, kRight, 0));
  const Tensor both =
      Attention(packed.q, packed.k, packed.v, *encoding, packed.Options()).out;
  const auto part = [](const Tensor& t, int64_t first, int64_t count) {
    return Tensor::Borrow(t.dtype(), {1, t.size(1), count, t.size(3)},
                          t.strides(), t.Data<float>() + first * t.size(3));
  };
  const auto expect_alone = [&](int64_t first, int64_t count) {
    const Tensor alone =
        Attention(part(packed.q, first, count), part(packed.k, first, count),
                  part(packed.v, first, count), *encoding)
            .out;
    EXPECT_LE(RelativeError(part(both, first, count), alone),
              ForwardTolerance(packed));
  };
  expect_alone(0, kLeft);
  expect_alone(kLeft, kRight);
}

}  // namespace
}  // namespace locus::testing
