// Measures the plan of `locus bench`, section by section.
#include <fmt/format.h>

#include <utility>

#include "cli/bench.h"
#include "cli/bench_progress.h"

namespace locus::cli {
namespace {

using bench::CallSpec;
using bench::Case;
using bench::Direction;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

// The masks of a section; by default, memory and growth use only one.
std::vector<bool> CausalOrNot(Masks masks, bool both) {
  switch (masks) {
    case Masks::kFull:
      return {false};
    case Masks::kCausal:
      return {true};
    case Masks::kBoth:
      break;
  }
  return both ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

std::string What(const CallSpec& spec, Direction direction) {
  return fmt::format("{} {} {}", spec.Name(), bench::DirectionName(direction),
                     spec.causal ? "causal" : "full");
}

// Measures the plan, printing each row as it is measured if `tell`.
class Runner {
 public:
  Runner(const BenchPlan& plan, bool tell)
      : plan_(plan), tell_(tell), progress_(Steps(plan)) {}

  BenchResults Run() {
    // Children come first: they must be forked before threads are started.
    progress_.Show("this machine");
    MeasureLimits();
    Print(HeaderText(plan_, results_.machine));
    if (plan_.memory) Memory();
    if (plan_.growth) Growth();
    if (plan_.attention) Attention();
    if (plan_.decode) Decode();
    if (plan_.rotation) Rotation();
    progress_.Clear();
    return std::move(results_);
  }

 private:
  static int Steps(const BenchPlan& plan) {
    const size_t rows = 2 * (plan.encodings.size() + plan.operands.size());
    const size_t masks = CausalOrNot(plan.masks, true).size();
    const auto types = [&](bench::Stream stream) {
      return plan.StreamTypes(stream).size();
    };
    return static_cast<int>(
        1 + (plan.memory ? rows : 0) + (plan.growth ? rows : 0) +
        (plan.attention ? rows * masks : 0) +
        (plan.decode ? types(bench::Stream::kDecode) * plan.decoded.size()
                     : 0) +
        (plan.rotation ? 2 * types(bench::Stream::kRotate) : 0));
  }

  void Print(const std::string& text) {
    if (!tell_) return;
    progress_.Clear();
    Emit(text);
  }

  void MeasureLimits() {
    const std::vector<double> found = bench::RunInChild([this] {
      const MachineLimits m = MeasureMachine(plan_.threads);
      return std::vector<double>{m.fma_gflops, m.read_gb_per_s, m.copy_gb_per_s,
                                 m.update_gb_per_s};
    });
    results_.machine = {.fma_gflops = found[0],
                        .read_gb_per_s = found[1],
                        .copy_gb_per_s = found[2],
                        .update_gb_per_s = found[3]};
  }

  // Calls measure(spec, direction) for every row of a section measured in
  // children.
  template <typename Measure>
  void EachLong(const char* what, const Measure& measure) {
    for (const Direction direction : kDirections) {
      for (const bool causal : CausalOrNot(plan_.masks, /*both=*/false)) {
        for (const CallSpec& spec : plan_.Specs(causal, kLongLength)) {
          progress_.Show(fmt::format("{} of {}", what, What(spec, direction)));
          measure(spec, direction);
        }
      }
    }
  }

  void Memory() {
    Print(MemoryTitle(plan_));
    EachLong("memory", [this](const CallSpec& spec, Direction direction) {
      results_.memory.push_back(bench::MeasureMemory(spec, direction));
      Print(RowText(results_.memory.back()));
    });
    Print(Meaning(results_.memory));
  }

  void Growth() {
    Print(GrowthTitle(plan_));
    const int repeats = plan_.Repeats(kGrowthRepeats);
    EachLong("growth", [&](const CallSpec& spec, Direction direction) {
      results_.growth.push_back(bench::MeasureGrowth(spec, direction, repeats));
      Print(RowText(results_.growth.back()));
    });
    Print(Meaning(results_.growth));
  }

  void Attention() {
    Print(SpeedTitle(plan_));
    for (const Direction direction : kDirections) {
      for (const bool causal : CausalOrNot(plan_.masks, /*both=*/true)) {
        Case plain(plan_.Spec("none", causal, kSpeedLength));
        for (const CallSpec& spec : plan_.Specs(causal, kSpeedLength)) {
          progress_.Show(What(spec, direction));
          bench::SpeedRow row;
          if (spec.Name() == "none") {
            row = Speed(plain, plain, direction);
          } else {
            Case with(spec);
            row = Speed(plain, with, direction);
          }
          row.error = bench::ShortError(spec, direction);
          results_.attention.push_back(row);
          Print(RowText(row));
        }
      }
    }
    Print(Meaning(results_.attention));
  }

  void Decode() {
    Print(StreamTitle(plan_, bench::Stream::kDecode));
    bench::StreamSpec spec = plan_.StreamOf(bench::Stream::kDecode);
    for (const DType dtype : plan_.StreamTypes(bench::Stream::kDecode)) {
      spec.dtype = dtype;
      bench::StreamCase plain(spec.Plain());
      for (const std::string& name : plan_.decoded) {
        spec.encoding = name;
        if (name == "none" && dtype == plain.spec().dtype) {
          Streamed(&plain, plain, results_.decode);
        } else {
          bench::StreamCase with(spec);
          Streamed(&plain, with, results_.decode);
        }
      }
    }
    Print(Meaning(results_.decode));
  }

  void Rotation() {
    Print(StreamTitle(plan_, bench::Stream::kRotate));
    bench::StreamSpec spec = plan_.StreamOf(bench::Stream::kRotate);
    for (const DType dtype : plan_.StreamTypes(bench::Stream::kRotate)) {
      for (const PairLayout layout :
           {PairLayout::kInterleaved, PairLayout::kHalves}) {
        spec.dtype = dtype;
        spec.layout = layout;
        bench::StreamCase with(spec);
        Streamed(/*plain=*/nullptr, with, results_.rotation);
      }
    }
    Print(Meaning(results_.rotation));
  }

  // Measures one row of decode or rotation.
  void Streamed(bench::StreamCase* plain, bench::StreamCase& with,
                std::vector<bench::StreamRow>& rows) {
    const bench::StreamSpec& spec = with.spec();
    const bool decode = spec.stream == bench::Stream::kDecode;
    progress_.Show(fmt::format("{} {} {}", decode ? "decode" : "rotation",
                               decode ? std::string_view(spec.encoding)
                                      : bench::LayoutName(spec.layout),
                               DTypeName(spec.dtype)));
    bench::StreamRow row = bench::MeasureStream(
        plain, with, plan_.Repeats(kSpeedRepeats), [] { Progress::Check(); });
    row.error = bench::StreamError(spec);
    rows.push_back(row);
    Print(RowText(row));
  }

  bench::SpeedRow Speed(Case& plain, Case& with, Direction direction) const {
    return bench::MeasureSpeed(plain, with, direction,
                               plan_.Repeats(kSpeedRepeats),
                               [] { Progress::Check(); });
  }

  const BenchPlan& plan_;
  bool tell_;
  Progress progress_;
  BenchResults results_;
};

}  // namespace

CallSpec BenchPlan::Spec(const std::string& encoding, bool causal,
                         int64_t usual_length) const {
  return {.encoding = encoding,
          .dtype = dtype.value_or(DType::kF32),
          .causal = causal,
          .heads = heads > 0 ? heads : 16,
          .length = length > 0 ? length : usual_length,
          .dim = dim > 0 ? dim : 64,
          .threads = threads};
}

std::vector<CallSpec> BenchPlan::Specs(bool causal,
                                       int64_t usual_length) const {
  std::vector<CallSpec> specs;
  for (const std::string& name : encodings) {
    specs.push_back(Spec(name, causal, usual_length));
  }
  for (const std::string& name : operands) {
    specs.push_back(Spec("none", causal, usual_length));
    specs.back().operand = name;
  }
  return specs;
}

bench::StreamSpec BenchPlan::StreamOf(bench::Stream stream) const {
  bench::StreamSpec spec{.stream = stream, .threads = threads};
  spec.length = length > 0                         ? length
                : stream == bench::Stream::kDecode ? kDecodeLength
                                                   : kRotateLength;
  if (dim > 0) spec.dim = dim;
  if (heads > 0) {
    // Four query heads share a key head, if that divides.
    spec.q_heads = heads;
    spec.kv_heads = heads % 4 == 0 ? heads / 4 : heads;
  }
  return spec;
}

std::vector<DType> BenchPlan::StreamTypes(bench::Stream stream) const {
  if (dtype) return {*dtype};
  std::vector<DType> types = {DType::kF32, DType::kBF16, DType::kF16};
  if (stream == bench::Stream::kDecode) types.push_back(DType::kI8);
  return types;
}

BenchResults RunBench(const BenchPlan& plan, bool tell) {
  return Runner(plan, tell).Run();
}

}  // namespace locus::cli
