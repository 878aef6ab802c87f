// The input of `locus ring`: an encoding, sizes and options, and numbers that
// depend only on the token, so any rank can generate any part of them.
#ifndef LOCUS_RING_CLI_CASE_H_
#define LOCUS_RING_CLI_CASE_H_

#include <memory>
#include <string>
#include <vector>

#include "cli/app.h"
#include "locus/ring.h"

namespace locus::ring {

// Command-line arguments as text.
struct CaseArgs {
  std::vector<std::string> options = {};  // of the encoding, name=value
  std::string heads = "4";
  std::string kv_heads = {};  // as heads
  std::string dim = "32";
  std::string length = "509";
  std::string window = {};  // tokens back, and ahead unless causal
  std::string dtype = "f32";
  std::string threads = "1";
  std::string seed = "1";
  std::string deadline = {};
  std::string save = {};
  bool json = false;

  void AddTo(CLI::App& command);
  // Throws Error if the string is not a valid time.
  double DeadlineSeconds() const;
};

struct Case {
  int64_t heads = 0, kv_heads = 0, dim = 0, length = 0;
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  bool causal = false;
  std::optional<int64_t> window = {};
  int threads = 1;
  double deadline_seconds = kDeadlineSeconds;
  std::map<std::string, std::string> options = {};

  // Throws Error for impossible numbers.
  explicit Case(const CaseArgs& args);

  std::unique_ptr<Encoding> Example(std::string_view name) const;
  AttentionOptions Options() const;
  cli::Json ToJson() const;
};

// Tokens of a shard, or of the whole sequence as one chunk.
struct Inputs {
  Tensor q = {}, k = {}, v = {};

  Inputs(const Case& c, const std::vector<Chunk>& chunks);
};

// Uniform numbers with mean 0 and variance 1 for the tokens of `chunks`: [1,
// heads, tokens, dim].
enum class Kind : uint8_t {
  kQ,
  kK,
  kV,
  kDOut,
  kSinks,
  kKeyBias,
  kPairBias,
  kMask,
};
Tensor Numbers(const Case& c, Kind kind, int64_t heads,
               const std::vector<Chunk>& chunks);

// The commands, on MPI_COMM_WORLD. They return an exit code.
struct CheckArgs {
  CaseArgs common = {};
  std::vector<std::string> encodings = {};
  std::vector<std::string> shardings = {};
  std::string sample = {};
  bool operands = false;
};
int Check(const CheckArgs& args);

struct BenchArgs {
  CaseArgs common = {.heads = "8", .dim = "64", .length = "16384"};
  std::string encoding = "rope";
  std::string sharding = "zigzag";
  std::vector<std::string> ranks = {};
  std::string repeats = "3";
  bool full = false;  // not causal
  bool backward = false;
};
int Bench(const BenchArgs& args);

}  // namespace locus::ring

#endif  // LOCUS_RING_CLI_CASE_H_
