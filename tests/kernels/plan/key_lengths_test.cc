// A sequence with a key length equals a call with its keys cut off there, with
// every driver.
#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

constexpr int64_t kKeys = 60;
const std::vector<int64_t> kLengths = {60, 33, 5, 0};

class KeyLengthsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Encoding> encoding() const {
    return FindEncoding(GetParam())
        .example({.heads = kQueryHeads, .head_dim = kHeadDim, .length = kKeys});
  }
};

TEST_P(KeyLengthsTest, EqualTheCutSequence) {
  const Sequence x = RandomSequence(kKeys, std::ssize(kLengths));
  for (int64_t queries : {1, 4, 40, 60}) {
    for (bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << queries << " queries, causal " << causal);
      const Tensor q = Part(x.q, 0, queries);
      const AttentionOptions options{
          .causal = causal, .key_lengths = kLengths, .return_lse = true};
      const AttentionResult fused =
          Attention(q, x.k, x.v, *encoding(), options);
      const reference::Forward exact =
          reference::Attention(q, x.k, x.v, *encoding(), options);
      const Tensor d_out = RandomTensor(q.shape(), 9).To(DType::kF32);
      const EncodingGrads grads =
          AttentionBackward(d_out, q, x.k, x.v, fused, *encoding(), options);
      KvCache whole(Config(std::ssize(kLengths))), ragged(whole.config());
      whole.Append(x.k, x.v, *encoding());
      ragged.Append(x.k, x.v, *encoding(), {.lengths = kLengths});
      DecodeOptions all = DecodeOptions::From(options);
      const Tensor decoded = whole.Decode(q, *encoding(), all).out;
      all.key_lengths = {};
      const Tensor of_ragged = ragged.Decode(q, *encoding(), all).out;
      for (int64_t b = 0; b < std::ssize(kLengths); ++b) {
        SCOPED_TRACE(b);
        const int64_t length = kLengths[static_cast<size_t>(b)];
        const Tensor k = Part(Only(x.k, b), 0, length);
        const Tensor v = Part(Only(x.v, b), 0, length);
        // Positions are given, so that no default applies.
        std::vector<int64_t> places;
        for (int64_t i = 0; i < queries; ++i) {
          places.push_back(i + std::max<int64_t>(length - queries, 0));
        }
        const AttentionOptions cut{
            .causal = causal, .q_positions = places, .return_lse = true};
        const reference::Forward alone =
            reference::Attention(Only(q, b), k, v, *encoding(), cut);
        const auto near = [&](const Tensor& t) {
          EXPECT_LE(RelativeError(Only(t, b), alone.out), 4 * kTolerance);
        };
        near(fused.out);
        near(exact.out.To(DType::kF32));
        near(decoded);
        near(of_ragged);
        const auto d_alone = reference::AttentionBackward(
            Only(d_out, b), Only(q, b), k, v, *encoding(), cut);
        EXPECT_LE(RelativeError(Only(grads.d_q, b), d_alone.d_q),
                  32 * kTolerance);
        EXPECT_LE(
            RelativeError(Part(Only(grads.d_k, b), 0, length), d_alone.d_k),
            32 * kTolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, KeyLengthsTest,
                         ::testing::Values("none", "rope", "mrope", "xpos",
                                           "alibi", "t5", "shaw", "deberta"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace locus::testing
