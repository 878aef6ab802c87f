#include "models/rotated_rows.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/fail.h"
#include "models/byte_reader.h"

namespace locus::models {
namespace {

struct Known {
  std::string_view component;
  Holds holds;
};
constexpr std::array kKnown = {
    Known{"q_proj", Holds::kQuery},
    Known{"k_proj", Holds::kKey},
    Known{"query", Holds::kQuery},
    Known{"key", Holds::kKey},
    Known{"wq", Holds::kQuery},
    Known{"wk", Holds::kKey},
    Known{"q_b_proj", Holds::kQuery},
    Known{"kv_a_proj_with_mqa", Holds::kLatentKey},
    Known{"query_key_value", Holds::kFused},
    Known{"qkv_proj", Holds::kFused},
    Known{"wqkv", Holds::kFused},
    Known{"Wqkv", Holds::kFused},
    Known{"W_pack", Holds::kFused},
    Known{"q_norm", Holds::kQueryNorm},
    Known{"k_norm", Holds::kKeyNorm},
    Known{"q_layernorm", Holds::kQueryNorm},
    Known{"k_layernorm", Holds::kKeyNorm},
    Known{"query_layernorm", Holds::kQueryNorm},
    Known{"key_layernorm", Holds::kKeyNorm},
};
// Components that hold q and k in an order that no family here is known to use.
constexpr std::array<std::string_view, 4> kUnknown = {"c_attn", "qkv", "to_qkv",
                                                      "in_proj_weight"};
// Vision and audio towers have projections of their own.
constexpr std::array<std::string_view, 4> kOtherParts = {"vision", "visual",
                                                         "audio", "image"};

std::vector<std::string_view> Split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

// The first component that is a number: the one after "layers", "h", "blocks".
std::optional<int64_t> LayerOf(const std::vector<std::string_view>& parts) {
  for (std::string_view part : parts) {
    int64_t number = 0;
    const char* end = part.data() + part.size();
    const auto [at, error] = std::from_chars(part.data(), end, number);
    if (error == std::errc() && at == end && number >= 0) return number;
  }
  return std::nullopt;
}

// What follows the component: weight or bias; for a norm also those of one
// head.
bool IsPlain(std::string_view rest, Holds holds) {
  if (rest == "weight" || rest == "bias") return true;
  const bool norm = holds == Holds::kQueryNorm || holds == Holds::kKeyNorm;
  return norm && rest.starts_with("norms.") &&
         (rest.ends_with(".weight") || rest.ends_with(".bias"));
}

std::vector<int64_t> HeadsInOrder(int64_t count, int64_t d) {
  std::vector<int64_t> heads;
  for (int64_t h = 0; h < count; ++h) heads.push_back(h * d);
  return heads;
}

// The first rows of q and k heads in a fused weight with D rows per head.
std::vector<int64_t> FusedHeads(std::string_view component,
                                const LayerPosition& p) {
  const int64_t d = p.head_dim, group = p.q_heads / p.kv_heads;
  std::vector<int64_t> heads;
  if (p.model_type == "codegen") {
    // The order in which four devices held the weight.
    constexpr int64_t kParts = 4;
    if (p.q_heads % kParts != 0) {
      Fail("CodeGen has a multiple of {} heads, got {}", kParts, p.q_heads);
    }
    const int64_t share = p.q_heads / kParts;
    for (int64_t part = 0; part < kParts; ++part) {
      for (int64_t h = 0; h < share; ++h) {
        heads.push_back((3 * part * share + h) * d);
        heads.push_back(((3 * part + 2) * share + h) * d);
      }
    }
    return heads;
  }
  const bool by_key_head =
      component == "wqkv" ||
      (component == "query_key_value" &&
       (p.model_type != "chatglm" || p.q_heads == p.kv_heads));
  if (by_key_head) {
    for (int64_t g = 0; g < p.kv_heads; ++g) {
      // The queries and the key; the value follows.
      for (int64_t h = 0; h <= group; ++h) {
        heads.push_back((g * (group + 2) + h) * d);
      }
    }
    return heads;
  }
  return HeadsInOrder(p.q_heads + p.kv_heads, d);
}

}  // namespace

std::optional<Role> RoleOf(std::string_view name) {
  const auto parts = Split(name);
  for (std::string_view part : parts) {
    for (std::string_view other : kOtherParts) {
      if (part.starts_with(other)) return std::nullopt;
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    // Words this common count only where BERT-like models use them.
    if ((part == "query" || part == "key") &&
        (i == 0 || parts[i - 1] != "self")) {
      continue;
    }
    if (std::ranges::find(kUnknown, part) != kUnknown.end()) {
      Fail("tensor '{}' holds q and k in an order that is not known",
           Printable(name));
    }
    const auto* known = std::ranges::find(kKnown, part, &Known::component);
    if (known == kKnown.end()) continue;
    const auto after = static_cast<size_t>(part.data() - name.data());
    const std::string_view rest =
        name.substr(std::min(after + part.size() + 1, name.size()));
    if (!IsPlain(rest, known->holds)) {
      Fail(
          "tensor '{}' changes q or k, but is no plain weight or bias: "
          "quantised and adapted models cannot be converted",
          Printable(name));
    }
    const auto layer = LayerOf(parts);
    if (!layer) Fail("tensor '{}' names no layer", Printable(name));
    return Role{.holds = known->holds, .component = part, .layer = *layer};
  }
  return std::nullopt;
}

RotatedRows RowsOf(const TensorEntry& tensor, const Role& role,
                   const LayerPosition& p) {
  const int64_t d = p.head_dim;
  const bool norm =
      role.holds == Holds::kQueryNorm || role.holds == Holds::kKeyNorm;
  const bool query =
      role.holds == Holds::kQuery || role.holds == Holds::kQueryNorm;
  const int64_t count = query ? p.q_heads : p.kv_heads;
  RotatedRows r;
  r.head = {.heads = 1,
            .head_dim = d,
            .rotary_dim = p.rotary->rotary_dim,
            .first_channel = p.rotary->first_channel};
  r.rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (norm && tensor.shape.size() == 2) r.rows *= tensor.shape[1];
  int64_t expected = count * d;
  std::string words = fmt::format("{} heads of {}", count, d);
  switch (role.holds) {
    case Holds::kQueryNorm:
    case Holds::kKeyNorm:
      // A norm of a single head is shared by all.
      if (r.rows == d) expected = d;
      r.heads = HeadsInOrder(expected / d, d);
      break;
    case Holds::kQuery:
    case Holds::kKey:
      r.heads = HeadsInOrder(count, d);
      break;
    case Holds::kFused:
      expected = (p.q_heads + 2 * p.kv_heads) * d;
      words = fmt::format("{} q and twice {} heads of {}", p.q_heads,
                          p.kv_heads, d);
      r.heads = FusedHeads(role.component, p);
      break;
    case Holds::kLatentKey: {
      const int64_t turning = p.rotary->rotary_dim;
      expected = std::max(r.rows, turning + 1);
      words = fmt::format("a latent and a key of {}", turning);
      r.heads = {r.rows - turning};
      r.head = {.heads = 1, .head_dim = turning, .rotary_dim = turning};
      break;
    }
  }
  const bool whole = r.rows > 0 && tensor.bytes > 0 &&
                     tensor.bytes % static_cast<uint64_t>(r.rows) == 0;
  if (r.rows != expected || tensor.shape.size() > 2 || !whole) {
    Fail("tensor '{}' is [{}]; the config says {}", Printable(tensor.name),
         fmt::join(tensor.shape, ", "), words);
  }
  return r;
}

}  // namespace locus::models
