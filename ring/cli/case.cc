#include "ring/cli/case.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

// Mixes the bits of a 64-bit counter (the finaliser of SplitMix64).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

DType ReadType(const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  throw Error(fmt::format("--dtype must be f32, bf16 or f16, got '{}'", name));
}

}  // namespace

double CaseArgs::DeadlineSeconds() const {
  if (deadline.empty()) return kDeadlineSeconds;
  double seconds = 0.0;
  const char* end = deadline.data() + deadline.size();
  const auto [stop, error] = std::from_chars(deadline.data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0.0) ||
      !std::isfinite(seconds)) {
    throw Error(
        fmt::format("--deadline must be seconds above 0, got '{}'", deadline));
  }
  return seconds;
}

void CaseArgs::AddTo(CLI::App& command) {
  command
      .add_option("-o,--option", options,
                  "an option of the encoding, name=value; may be repeated")
      ->allow_extra_args(false);
  const auto add = [&command](const char* flag, std::string& value,
                              const char* what) {
    command.add_option(flag, value, what)->capture_default_str();
  };
  add("--heads", heads, "query heads");
  add("--kv-heads", kv_heads, "key heads; as many as query heads if not given");
  add("--dim", dim, "channels per head");
  add("--length", length, "tokens of the whole sequence");
  add("--window", window, "how many tokens back a query sees");
  add("--dtype", dtype, "f32, bf16 or f16");
  add("--threads", threads, "threads per rank");
  add("--seed", seed, "seed of the numbers");
  add("--deadline", deadline, "seconds to wait for another rank; default 300");
  add("--save", save, "write the results to this file as JSON");
  command.add_flag("--json", json, "print JSON");
}

Case::Case(const CaseArgs& args) {
  using cli::ReadNumber;
  // The bounds keep products of sizes within 64 bits.
  heads = ReadNumber("--heads", args.heads, 1, 1024);
  kv_heads = args.kv_heads.empty()
                 ? heads
                 : ReadNumber("--kv-heads", args.kv_heads, 1, 1024);
  dim = ReadNumber("--dim", args.dim, 1, 4096);
  length = ReadNumber("--length", args.length, 1, int64_t{1} << 32);
  seed = static_cast<uint64_t>(ReadNumber("--seed", args.seed, 0, UINT32_MAX));
  threads = static_cast<int>(ReadNumber("--threads", args.threads, 1, 1024));
  dtype = ReadType(args.dtype);
  if (!args.window.empty()) {
    window = ReadNumber("--window", args.window, 0, int64_t{1} << 32);
  }
  deadline_seconds = args.DeadlineSeconds();
  // Parsed as everywhere else in the tool.
  options = cli::EncodingArgs{.options = args.options}.Config().options;
}

std::unique_ptr<Encoding> Case::Example(std::string_view name) const {
  return FindEncoding(name).example({.heads = heads,
                                     .head_dim = dim,
                                     .length = length,
                                     .seed = seed,
                                     .options = options});
}

AttentionOptions Case::Options() const {
  AttentionOptions o{.causal = causal, .threads = threads, .return_lse = true};
  if (window) o.window = Window{.left = *window, .right = *window};
  return o;
}

cli::Json Case::ToJson() const {
  cli::Json json = {{"length", length},
                    {"heads", heads},
                    {"kv_heads", kv_heads},
                    {"dim", dim},
                    {"dtype", DTypeName(dtype)},
                    {"threads", threads},
                    {"seed", seed},
                    {"deadline_seconds", deadline_seconds},
                    {"options", options}};
  if (window) json["window"] = *window;
  return json;
}

Tensor Numbers(const Case& c, Kind kind, int64_t heads,
               const std::vector<Chunk>& chunks) {
  int64_t tokens = 0;
  for (const Chunk& chunk : chunks) tokens += chunk.count;
  Tensor x = Tensor::Empty(DType::kF32, {1, heads, tokens, c.dim});
  float* at = x.MutableData<float>();
  const uint64_t stream = Mix(c.seed * 8 + static_cast<uint64_t>(kind));
  for (int64_t h = 0; h < heads; ++h) {
    for (const Chunk& chunk : chunks) {
      for (int64_t i = 0; i < chunk.count; ++i) {
        const int64_t token = chunk.first + i * chunk.stride;
        uint64_t counter =
            stream + static_cast<uint64_t>((token * heads + h) * c.dim);
        for (int64_t d = 0; d < c.dim; ++d) {
          // 24 bits in [0, 1), scaled to [-sqrt(3), sqrt(3)).
          const auto unit = static_cast<float>(Mix(counter++) >> 40) * 0x1p-24F;
          *at++ = (2.0F * unit - 1.0F) * 1.7320508F;
        }
      }
    }
  }
  return Convert(x, c.dtype);
}

Inputs::Inputs(const Case& c, const std::vector<Chunk>& chunks)
    : q(Numbers(c, Kind::kQ, c.heads, chunks)),
      k(Numbers(c, Kind::kK, c.kv_heads, chunks)),
      v(Numbers(c, Kind::kV, c.kv_heads, chunks)) {}

}  // namespace locus::ring
