// Layout: magic, version, the fields in order, SHA-256 of all before it.
// Numbers are little-endian int64; strings and arrays follow their length.
#include "lab/train/state.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "lab/train/sha256.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "LOCUSLAB";
constexpr int64_t kVersion = 1;
constexpr size_t kChecksumBytes = 64;

class Writer {
 public:
  void Number(int64_t value) { Raw(&value, sizeof(value)); }
  void Text(std::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    Raw(text.data(), text.size());
  }
  void Floats(const std::vector<float>& values) {
    Number(static_cast<int64_t>(values.size()));
    Raw(values.data(), values.size() * sizeof(float));
  }
  void Raw(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  int64_t Number() {
    int64_t value = 0;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Take(Length(1))); }
  std::vector<float> Floats() {
    const std::string_view raw = Take(Length(sizeof(float)));
    std::vector<float> values(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  bool AtEnd() const { return bytes_.empty(); }

 private:
  size_t Length(size_t element) {
    const auto count = static_cast<uint64_t>(Number());
    if (count > bytes_.size() / element) Short();
    return count * element;
  }
  std::string_view Take(size_t size) {
    if (size > bytes_.size()) Short();
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  [[noreturn]] static void Short() {
    throw Error("a saved state ends before its last field");
  }

  std::string_view bytes_;
};

}  // namespace

std::string Encode(const SavedState& state) {
  Writer out;
  out.Raw(kMagic.data(), kMagic.size());
  out.Number(kVersion);
  out.Text(state.spec);
  out.Number(state.step);
  out.Number(state.extended ? 1 : 0);
  out.Number(state.train_length);
  out.Number(static_cast<int64_t>(state.options.size()));
  for (const auto& [name, value] : state.options) {
    out.Text(name);
    out.Text(value);
  }
  out.Number(state.optimiser_steps);
  out.Floats(state.parameters);
  out.Floats(state.mean);
  out.Floats(state.square);
  const std::string checksum = Sha256(out.bytes_);
  out.Raw(checksum.data(), checksum.size());
  return out.bytes_;
}

SavedState Decode(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    throw Error(
        "these bytes are no saved state of a run: they do not begin "
        "with LOCUSLAB");
  }
  if (bytes.size() < kMagic.size() + sizeof(kVersion) + kChecksumBytes) {
    throw Error(
        fmt::format("a saved state of {} bytes is cut short", bytes.size()));
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  Reader in(body.substr(kMagic.size()));
  const int64_t version = in.Number();
  if (version != kVersion) {
    throw Error(fmt::format("the saved state has version {}; this is {}",
                            version, kVersion));
  }
  if (Sha256(body) != bytes.substr(body.size())) {
    throw Error("the saved state is damaged: its checksum does not match");
  }
  SavedState state;
  state.spec = in.Text();
  state.step = in.Number();
  state.extended = in.Number() != 0;
  state.train_length = in.Number();
  for (int64_t left = in.Number(); left > 0; --left) {
    std::string name = in.Text();
    state.options[name] = in.Text();
  }
  state.optimiser_steps = in.Number();
  state.parameters = in.Floats();
  state.mean = in.Floats();
  state.square = in.Floats();
  if (!in.AtEnd()) throw Error("a saved state goes on after its last field");
  return state;
}

}  // namespace locus::lab
