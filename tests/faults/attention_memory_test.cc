// Attention when memory runs out: forward with every driver, backward, merging.
#include <future>

#include "faults/failing_new.h"
#include "kernels/backward/backward.h"
#include "kernels/compare.h"

namespace locus::testing {
namespace {

struct Case {
  const char* name;
  unsigned terms;
  int bias_kind;
  bool operands = false;  // all operands that a call may have
};

// All terms, in few calls.
constexpr Case kCases[] = {
    {"Nothing", 0, 0},
    {"RotateTable", kRotate | kBias, 0},
    {"ExtraRamp", kExtraDot | kBias, 1},
    {"RotateProfile", kRotate | kBias, 2},
    {"Tables", kQTable | kKTable | kVTable, 0},
    {"All", kAllTerms & ~unsigned{kInputAdd}, 0},
    {"Operands", kRotateValues, 0, /*operands=*/true},
};

Call MakeCall(const Case& c, int64_t q_len, int64_t k_len, DType dtype) {
  CallMaker maker({.batch = 2,
                   .heads = 4,
                   .kv_heads = 2,
                   .q_len = q_len,
                   .k_len = k_len,
                   .head_dim = 8,
                   .value_dim = 8,
                   .terms = c.terms,
                   .bias_kind = c.bias_kind});
  Call call = maker.Make();
  call.q = call.q.To(dtype);
  call.k = call.k.To(dtype);
  call.v = call.v.To(dtype);
  call.options.causal = true;
  if (c.terms != 0) call.options.softcap = 20.0;
  constexpr unsigned kAll = (1U << CallMaker::kOperands) - 1;
  if (c.operands) maker.AddOperands(call, kAll);
  call.options.return_lse = true;
  return call;
}

class AttentionMemoryTest
    : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const Case& c() const { return kCases[std::get<0>(GetParam())]; }
  int threads() const { return std::get<1>(GetParam()); }
};

// Runs a driver on exactly this many threads. Each attempt uses a new thread,
// which has nothing cached from others.
void ExpectDriverAllocatesFirst(const char* driver, const Call& call,
                                int threads) {
  const AttentionOptions options = call.Options();
  AttentionResult result{
      .out = Tensor::Empty(call.q.dtype(), {call.q.size(0), call.q.size(1),
                                            call.q.size(2), call.v.size(3)}),
      .lse = Tensor::Empty(DType::kF32,
                           {call.q.size(0), call.q.size(1), call.q.size(2)}),
      .weights = Tensor::Empty(DType::kF32, {call.q.size(0), call.q.size(1),
                                             call.q.size(2), call.k.size(2)})};
  const auto attend = [&] {
    const kernels::Plan plan(
        call.q, call.k, call.v, call.terms, options,
        {.cached_keys = true, .driver = driver, .threads = threads});
    kernels::RunInto(plan, call.q, call.k, call.v, result);
  };
  ExpectAllocatesBeforeItWrites({result.out, result.lse, result.weights}, [&] {
    std::async(std::launch::async, attend).get();
  });
}

// More units than threads, and more than one tile of queries.
TEST_P(AttentionMemoryTest, Tiled) {
  const Call call = MakeCall(c(), 100, 100, DType::kF32);
  ExpectDriverAllocatesFirst("tiled", call, threads());
}

// More queries than fit in one pass over the keys.
TEST_P(AttentionMemoryTest, Decode) {
  const Call call = MakeCall(c(), 20, 60, DType::kBF16);
  ExpectDriverAllocatesFirst("decode", call, threads());
}

TEST_P(AttentionMemoryTest, Short) {
  Call call = MakeCall(c(), 20, 20, DType::kF32);
  call.q_pos.clear();
  call.k_pos.clear();
  if (DriverOf(call) != "short") {
    EXPECT_TRUE(call.terms.q_table) << "tables are for the other drivers";
    return;
  }
  ExpectDriverAllocatesFirst("short", call, threads());
}

TEST_P(AttentionMemoryTest, Backward) {
  Call call = MakeCall(c(), 40, 40, DType::kF32);
  const AttentionOptions options = call.Options();
  const AttentionResult forward =
      Attention(call.q, call.k, call.v, call.terms, options);
  Tensor d_q = Tensor::Empty(DType::kF32, call.q.shape());
  Tensor d_k = Tensor::Empty(DType::kF32, call.k.shape());
  Tensor d_v = Tensor::Empty(DType::kF32, call.v.shape());
  ExpectAllocatesBeforeItWrites({d_q, d_k, d_v}, [&] {
    const kernels::Plan plan(call.q, call.k, call.v, call.terms, options,
                             {.pass = Pass::kBackward, .threads = threads()});
    TermGrads grads = ZeroGrads(plan.terms);
    OperandGrads operands;
    const kernels::Call whole(plan, kernels::Rows(call.q),
                              kernels::Rows(call.k), kernels::Rows(call.v));
    kernels::Backward({.call = whole,
                       .d_out = kernels::Rows(forward.out),
                       .out = kernels::Rows(forward.out),
                       .lse = forward.lse.Data<float>(),
                       .d_lse = nullptr,
                       .d_q = &d_q,
                       .d_k = &d_k,
                       .d_v = &d_v,
                       .grads = &grads,
                       .operands = &operands});
  });
  ExpectSurvivesEveryAllocation([&] {
    const kernels::Plan plan(call.q, call.k, call.v, call.terms, options,
                             {.pass = Pass::kBackward, .threads = threads()});
    const AttentionGrads grads = kernels::RunBackward(plan, forward.out, call.q,
                                                      call.k, call.v, forward);
    std::vector<Tensor> all = {grads.d_q, grads.d_k, grads.d_v};
    for (const Param& param : Members(grads.terms)) all.push_back(param.value);
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Terms, AttentionMemoryTest,
    ::testing::Combine(::testing::Range(0, static_cast<int>(std::size(kCases))),
                       ::testing::Values(1, 2)),
    [](const auto& info) {
      return std::string(kCases[std::get<0>(info.param)].name) + "On" +
             std::to_string(std::get<1>(info.param));
    });

// Through the public API: an encoding is lowered, and its gradients are pulled
// back. Large enough for two threads.
TEST(CallMemoryTest, WholeCallsOfAnEncoding) {
  const Tensor q = RandomTensor({1, 4, 130, 32}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({1, 2, 130, 32}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({1, 2, 130, 32}, 3).To(DType::kF32);
  const T5Bias t5(RandomTensor({32, 4}, 4));
  const AttentionOptions options{
      .causal = true, .threads = 2, .return_lse = true};
  ExpectSurvivesEveryAllocation([&] {
    const AttentionResult forward = Attention(q, k, v, t5, options);
    const EncodingGrads grads =
        AttentionBackward(forward.out, q, k, v, forward, t5, options);
    std::vector<Tensor> all = {forward.out, grads.d_q, grads.d_k, grads.d_v};
    for (const Param& param : grads.params) all.push_back(param.value);
    return all;
  });
}

TEST(CallMemoryTest, Merge) {
  const AttentionResult a{.out = RandomTensor({2, 2, 9, 8}, 1).To(DType::kBF16),
                          .lse = RandomTensor({2, 2, 9}, 2).To(DType::kF32)};
  const AttentionResult b{.out = RandomTensor({2, 2, 9, 8}, 3).To(DType::kBF16),
                          .lse = RandomTensor({2, 2, 9}, 4).To(DType::kF32)};
  ExpectSurvivesEveryAllocation([&] {
    const AttentionResult merged = Merge(a, b);
    return std::vector<Tensor>{merged.out, merged.lse};
  });
}

}  // namespace
}  // namespace locus::testing
