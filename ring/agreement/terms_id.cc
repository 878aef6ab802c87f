#include "ring/agreement/terms_id.h"

#include <bit>
#include <concepts>
#include <cstring>
#include <string_view>

#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

// Hashes eight bytes at a time: a multiplication, then a shift that mixes the
// high bits into the low ones.
class Mixer {
 public:
  void Bytes(const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    Word(size);
    for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at, sizeof(word));
      Word(word);
      at += sizeof(word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, at, size);
    Word(rest);
  }
  void Add(std::integral auto value) { Word(static_cast<uint64_t>(value)); }
  void Add(double value) { Word(std::bit_cast<uint64_t>(value)); }
  void Add(std::string_view text) { Bytes(text.data(), text.size()); }
  void Add(const std::vector<double>& values) {
    Bytes(values.data(), values.size() * sizeof(double));
  }
  void Add(const Tensor& given) {
    Add(given.defined());
    if (!given.defined()) return;
    const Tensor t = given.To(given.dtype());
    Add(static_cast<int>(t.dtype()));
    for (int64_t size : t.shape()) Add(size);
    Bytes(BytesOf(t),
          static_cast<size_t>(t.NumElements() * DTypeBytes(t.dtype())));
  }
  void Add(const BucketMap& map) {
    Add(map.count);
    Add(map.min_offset);
    Add(map.max_offset);
    for (const BucketMap::Piece& piece : map.pieces) {
      Add(piece.start);
      Add(piece.first_bucket);
      Add(piece.step);
    }
    if (map.grid) {
      Add(map.grid->width);
      Add(map.grid->stride);
      Add(map.grid->origin);
    }
    if (map.special) {
      Add(map.special->position);
      Add(map.special->as_query);
      Add(map.special->as_key);
      Add(map.special->as_both);
    }
  }
  void Add(const InputAdd& input) {
    Add(input.table);
    Add(input.first_position);
    Add(input.widen);
  }
  void Add(const Rotation& rotation) { Add(rotation.Id()); }
  void Add(const ValueRotation& values) {
    Add(values.rotation);
    Add(values.relative);
  }
  void Add(const ExtraDot& extra) {
    Add(extra.q_rows);
    Add(extra.k_rows);
    Add(extra.first_position);
  }
  void Add(const BucketTable& table) {
    Add(table.rows);
    Add(table.buckets);
  }
  void Add(const BiasTable& table) {
    Add(table.values);
    Add(table.buckets);
  }
  void Add(const BiasRamp& ramp) {
    Add(ramp.past);
    Add(ramp.future);
  }
  void Add(const BiasProfile& profile) {
    Add(profile.distance);
    Add(profile.row_gain);
    Add(profile.first_position);
    Add(profile.knots);
    Add(profile.base);
    Add(profile.slope);
  }
  void Add(const Bias& bias) {
    Add(bias.index());
    std::visit([this](const auto& kind) { Add(kind); }, bias);
  }
  template <typename T>
  void Add(const std::optional<T>& term) {
    Add(term.has_value());
    if (term) Add(*term);
  }

  uint64_t id() const { return state_; }

 private:
  void Word(uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
    state_ ^= state_ >> 29;
  }

  uint64_t state_ = 0x243F6A8885A308D3U;  // digits of pi
};

}  // namespace

uint64_t TermsId(const Terms& terms) {
  Mixer mixer;
  mixer.Add(terms.input_add);
  mixer.Add(terms.scale.scale);
  mixer.Add(terms.scale.rows.defined());
  if (terms.scale.rows.defined()) mixer.Add(terms.scale.rows);
  mixer.Add(terms.scale.first_position);
  mixer.Add(terms.rotate);
  mixer.Add(terms.extra_dot);
  mixer.Add(terms.q_table);
  mixer.Add(terms.k_table);
  mixer.Add(terms.bias);
  mixer.Add(terms.v_table);
  mixer.Add(terms.rotate_values);
  return mixer.id();
}

uint64_t ParamsId(const std::vector<Param>& params) {
  Mixer mixer;
  for (const Param& param : params) {
    mixer.Add(std::string_view(param.name));
    mixer.Add(param.value);
  }
  return mixer.id();
}

}  // namespace locus::ring
