// The training text of byte models.
#ifndef LOCUS_LAB_TASKS_CORPUS_H_
#define LOCUS_LAB_TASKS_CORPUS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace locus::lab {

class Corpus {
 public:
  // After unpacking. Every worker holds the whole text in memory.
  static constexpr size_t kMostBytes = size_t{256} << 20;

  // Any file of at most kMostBytes; gzip is unpacked. Throws Error if it cannot
  // be read or is too short to train on.
  static Corpus Open(const std::string& path);
  // The Jargon File of Debian's package dict-jargon: 1.4 MB of English prose in
  // the public domain. Throws Error, with what to do, if it is absent.
  static Corpus Default();
  // A given text, for example in tests.
  static Corpus FromText(std::string name, std::string text);

  const std::string& name() const { return name_; }
  const std::string& licence() const { return licence_; }
  const std::string& sha256() const { return sha256_; }  // hexadecimal
  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }

  // The first nine tenths are for training; the rest is never trained on.
  std::string_view train() const;
  std::string_view held_out() const;

 private:
  Corpus(std::string name, std::string licence, std::string text);

  std::string name_;
  std::string licence_;
  std::string text_;
  std::string sha256_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TASKS_CORPUS_H_
