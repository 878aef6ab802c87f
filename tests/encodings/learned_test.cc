#include "locus/encodings/learned.h"

#include "support/encoding_checks.h"
#include "support/input_checks.h"

LOCUS_COVERS(learned);

namespace locus::testing {
namespace {

TEST(LearnedTest, MatchesPaperFormula) {
  for (bool causal : {false, true}) {
    for (int64_t offset : {0, 2}) {
      for (DType dtype : {DType::kF64, DType::kF32}) {
        const Tensor table = RandomTensor({30, 8}, 4).To(dtype);
        for (int64_t first : {0, 11}) {
          const InputCase c{.first_position = first, .causal = causal};
          EXPECT_LE(InputError(
                        Learned(table, offset), c,
                        [&](int64_t p) { return RowOf(table, 0, p + offset); }),
                    kPaperTolerance);
        }
      }
    }
  }
}

TEST(LearnedTest, ServesALongTable) {
  const Tensor table = RandomTensor({kFar + 17, 2}, 4);
  const InputCase c{.dim = 2, .first_position = kFar};
  EXPECT_LE(InputError(Learned(table), c,
                       [&](int64_t p) { return RowOf(table, 0, p); }),
            kPaperTolerance);
}

// One head on x + E[pos], [batch, length, model]: the loss sum(w * out) and its
// gradient with respect to E.
struct Model {
  static constexpr int64_t kBatch = 2, kLength = 5, kDim = 4;
  Tensor x = RandomTensor({kBatch, kLength, kDim}, 1);
  Tensor wq = RandomTensor({kDim, kDim}, 2), wk = RandomTensor({kDim, kDim}, 3);
  Tensor wv = RandomTensor({kDim, kDim}, 4);
  Tensor w = RandomTensor({kBatch, 1, kLength, kDim}, 5);
  AttentionOptions options{.causal = true};
  Shape shape = Shape::SelfAttention(1, kDim, kLength, /*causal=*/true);

  Tensor Project(const Tensor& weight, const Tensor& rows) const {
    Tensor out = Tensor::Zeros(DType::kF64, {kBatch, 1, kLength, kDim});
    double* o = out.MutableData<double>();
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kLength; ++i, o += kDim) {
        for (int64_t e = 0; e < kDim; ++e) {
          for (int64_t d = 0; d < kDim; ++d) {
            o[e] += weight.At(e, d) * (x.At(b, i, d) + rows.At(i, d));
          }
        }
      }
    }
    return out;
  }

  double Loss(const Encoding& learned) const {
    const Tensor rows = learned.Embed(PositionsFrom(0, kLength));
    return Dot(w.ToVector(),
               reference::Attention(Project(wq, rows), Project(wk, rows),
                                    Project(wv, rows), learned, options)
                   .out.ToVector());
  }

  // E is added to x before the projections: d_E[pos] = sum over the batch of
  // d_x = Wq^T d_q + Wk^T d_k + Wv^T d_v.
  ParamGrads Grads(const Encoding& learned) const {
    const Terms terms = learned.Lower(shape).terms;
    const Tensor rows = learned.Embed(PositionsFrom(0, kLength));
    auto g =
        reference::AttentionBackward(w, Project(wq, rows), Project(wk, rows),
                                     Project(wv, rows), terms, options);
    double* d_e = g.terms.input_add.MutableData<double>();
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kLength; ++i) {
        const int64_t row = i - terms.input_add->first_position;
        for (int64_t e = 0; e < kDim; ++e) {
          for (int64_t d = 0; d < kDim; ++d) {
            d_e[row * kDim + d] += wq.At(e, d) * g.d_q.At(b, 0, i, e) +
                                   wk.At(e, d) * g.d_k.At(b, 0, i, e) +
                                   wv.At(e, d) * g.d_v.At(b, 0, i, e);
          }
        }
      }
    }
    return learned.PullBack(shape, g.terms);
  }
};

TEST(LearnedTest, PullBackMatchesFiniteDifferences) {
  constexpr double kStep = 1e-5;
  const Model model;
  for (int64_t offset : {0, 2}) {
    const Learned learned(RandomTensor({9, Model::kDim}, 6), offset);
    const ParamGrads grads = model.Grads(learned);
    ASSERT_EQ(grads.size(), 1u);
    EXPECT_EQ(grads[0].name, "table");
    const std::vector<double> table = learned.Params()[0].value.ToVector();
    std::vector<double> numeric;
    for (size_t e = 0; e < table.size(); ++e) {
      const auto at = [&](double delta) {
        std::vector<double> moved = table;
        moved[e] += delta;
        const Tensor tensor = Tensor::From({9, Model::kDim}, std::move(moved));
        return model.Loss(*learned.WithParams({&tensor, 1}));
      };
      numeric.push_back((at(kStep) - at(-kStep)) / (2.0 * kStep));
    }
    EXPECT_LE(
        RelativeError(grads[0].value, Tensor::From({9, Model::kDim}, numeric)),
        kDifferenceTolerance);
  }
}

TEST(LearnedTest, RefusesBadInput) {
  const Learned learned(RandomTensor({8, 4}, 1), 2);
  const auto embed = [&](int64_t p) {
    return ErrorOf([&] { learned.Embed({&p, 1}); });
  };
  EXPECT_EQ(embed(5), "");
  EXPECT_EQ(embed(6), "learned positions cover 0 .. 5, got 6");
  EXPECT_EQ(embed(-1), "learned positions cover 0 .. 5, got -1");
  EXPECT_EQ(ErrorOf([&] { learned.Lower(Shape::SelfAttention(1, 4, 7)); }),
            "learned positions cover 0 .. 5, but the call has position 6");
  Shape negative = Shape::SelfAttention(1, 4, 3);
  negative.min_k_pos = -2;
  EXPECT_EQ(ErrorOf([&] { learned.Lower(negative); }),
            "learned positions cover 0 .. 5, but the call has position -2");
  EXPECT_EQ(ErrorOf([] { Learned(RandomTensor({8}, 1)); }),
            "learned positions need a table [L, model_dim], got f64 [8]");
  EXPECT_EQ(ErrorOf([] { Learned{Tensor()}; }),
            "learned positions need a table [L, model_dim], got none");
  EXPECT_EQ(ErrorOf([] {
              Learned(RandomTensor({8, 4}, 1), 8);
            }),
            "the offset of learned positions must lie in [0, 8), got 8");
  EXPECT_EQ(ErrorOf([&] { learned.WithParams({}); }),
            "learned has 1 trainable parameter, got 0");
}

}  // namespace
}  // namespace locus::testing
