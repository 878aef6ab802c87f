// Bytes of English text. A decoder outputs the next byte; an encoder the bytes
// that were blanked out, three in twenty as in BERT (Devlin et al. 2018).
//
// Windows for scoring follow one another without overlap from the start of the
// held-out part, so every length is scored on the same bytes, as far as whole
// windows cover them, with longer contexts in longer windows.
#include "lab/tasks/tasks.h"

namespace locus::lab {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kBlank = kBytes;
constexpr double kBlankedShare = 0.15;

Sequence Make(const SequenceRequest& request, Random& random) {
  const std::string_view text =
      request.training ? request.corpus->train() : request.corpus->held_out();
  const int64_t count = NumSymbols(request);
  const int64_t start =
      request.training
          ? random.Below(static_cast<int64_t>(text.size()) - count + 1)
          : request.index * request.length;
  const bool decoder = request.kind == ModelKind::kDecoder;
  Symbols symbols;
  for (int64_t i = 0; i < count; ++i) {
    const char byte = text[static_cast<size_t>(start + i)];
    symbols.Add(static_cast<unsigned char>(byte),
                decoder || random.Uniform() < kBlankedShare);
  }
  return ToSequence(request, std::move(symbols), kBlank);
}

}  // namespace

const TaskInfo kTextTask = {
    .name = "text",
    .title = "English text",
    .what = "Give out the next byte of English prose.",
    .vocabulary = kBytes + 1,
    .uses_corpus = true,
    .defaults = {.train_length = 64,
                 .lengths = {64, 128, 256, 512, 1024},
                 .batch = 32,
                 .steps = 400,
                 .learning_rate = 3e-3,
                 .score_tokens = 32768},
    .make = Make,
};

}  // namespace locus::lab
