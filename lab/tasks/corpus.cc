#include "lab/tasks/corpus.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include "lab/train/sha256.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

// Where the package dict-jargon has its text: unpacked by tools/corpus.sh, or
// installed.
constexpr std::array<const char*, 2> kDefaultPaths = {
    LOCUS_CORPUS_DIR "/usr/share/dictd/jargon.dict.dz",
    "/usr/share/dictd/jargon.dict.dz"};

// A tenth of this is still enough to score a few sequences.
constexpr size_t kLeastBytes = 16384;

std::string ReadUnzipped(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(fmt::format("the corpus {} is not a file", path));
  }
  const auto close = [](gzFile file) { gzclose(file); };
  const std::unique_ptr<gzFile_s, decltype(close)> file(
      gzopen(path.c_str(), "rb"), close);
  if (file == nullptr) {
    throw Error(fmt::format("the corpus {} cannot be opened", path));
  }
  std::string text;
  std::array<char, 1 << 16> buffer;
  int got = 0;
  while ((got = gzread(file.get(), buffer.data(),
                       static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > Corpus::kMostBytes) {
      throw Error(fmt::format(
          "the corpus {} has more than the {} bytes that can be trained on",
          path, Corpus::kMostBytes));
    }
  }
  int status = Z_OK;
  const char* message = gzerror(file.get(), &status);
  if (status != Z_OK && status != Z_STREAM_END) {
    throw Error(fmt::format("the corpus {} cannot be read: {}", path, message));
  }
  return text;
}

}  // namespace

Corpus::Corpus(std::string name, std::string licence, std::string text)
    : name_(std::move(name)),
      licence_(std::move(licence)),
      text_(std::move(text)),
      sha256_(Sha256(text_)) {
  if (text_.size() < kLeastBytes) {
    throw Error(fmt::format("the corpus {} has {} bytes; it needs at least {}",
                            name_, text_.size(), kLeastBytes));
  }
}

Corpus Corpus::Open(const std::string& path) {
  return {std::filesystem::path(path).filename().string(), "unknown",
          ReadUnzipped(path)};
}

Corpus Corpus::Default() {
  for (const char* path : kDefaultPaths) {
    if (!std::filesystem::exists(path)) continue;
    return {"The Jargon File 4.4.7 (Debian dict-jargon)", "public domain",
            ReadUnzipped(path)};
  }
  throw Error(
      fmt::format("the default corpus {} is missing; run tools/corpus.sh, "
                  "install the package dict-jargon, or name a text file",
                  kDefaultPaths[0]));
}

Corpus Corpus::FromText(std::string name, std::string text) {
  return {std::move(name), "unknown", std::move(text)};
}

std::string_view Corpus::train() const {
  return std::string_view(text_).substr(0, text_.size() / 10 * 9);
}

std::string_view Corpus::held_out() const {
  return std::string_view(text_).substr(text_.size() / 10 * 9);
}

}  // namespace locus::lab
