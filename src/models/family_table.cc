// Families with a table or sinusoids at the input and plain attention,
// described by rows of the keys and tensors in which they differ.
#include <algorithm>

#include "locus/encodings/learned.h"
#include "models/families.h"
#include "models/images.h"
#include "models/project.h"

namespace locus::models {
namespace {

constexpr const char* kPlainAttention =
    "plain attention: position is in the input";

enum class Side : uint8_t {
  kEncoder,  // bidirectional
  kDecoder,  // causal
  kByFlag,   // a decoder if is_decoder is true
};

// The table row of position p.
enum class RowRule : uint8_t {
  kPlain,   // p
  kTwo,     // p + 2, in a table with two more rows
  kPadded,  // p + pad_token_id + 1
};

struct TextRow {
  const char* tensor;
  Side side = Side::kEncoder;
  RowRule rows = RowRule::kPlain;
  SizeKeys sizes = {.kv_heads = {}, .head_dim = {}};
  Names width = {};  // of the table, if it is not model_dim
  Names ignored = {};
  const char* warning = nullptr;
};

void SetSide(Reader& r, Side side) {
  const bool flag = r.c.FlagOr("is_decoder", false);
  const bool decoder =
      side == Side::kDecoder || (side == Side::kByFlag && flag);
  r.out.part = decoder ? "decoder" : "encoder";
  r.out.causal = decoder;
}

int64_t PadOffset(Reader& r) {
  const auto pad = r.c.MaybeInt("pad_token_id", 0, kMostLength);
  if (!pad) {
    Fail("{} is null: the rows of positions start after it",
         r.c.Path("pad_token_id"));
  }
  return *pad + 1;
}

void LearnedRows(Reader& r, const std::string& tensor, int64_t length,
                 int64_t width, RowRule rule) {
  if (rule == RowRule::kTwo) {
    r.Learned(tensor, length + 2, width, 2);
    return;
  }
  const int64_t offset = rule == RowRule::kPadded ? PadOffset(r) : 0;
  if (offset >= length) {
    Fail("{} positions are none after the padding's row {}", length,
         offset - 1);
  }
  r.Learned(tensor, length, width, offset);
}

std::function<void(Reader&)> Text(const TextRow& row) {
  return [row](Reader& r) {
    SetSide(r, row.side);
    r.Sizes(row.sizes);
    r.Ignore(row.ignored);
    if (row.warning != nullptr) r.Warn("{}", row.warning);
    const std::string kind =
        r.c.MaybeText("position_embedding_type").value_or("absolute");
    if (kind != "absolute") {
      Fail("{} = '{}' is not read for {}; only absolute is",
           r.c.Path("position_embedding_type"), Printable(kind), r.out.family);
    }
    const int64_t width = row.width.empty()
                              ? r.out.model_dim
                              : r.c.MaybeIntOf(row.width, 1, kMostWidth)
                                    .value_or(r.out.model_dim);
    r.NoPosition(kPlainAttention);
    LearnedRows(r, row.tensor, r.out.trained_length, width, row.rows);
  };
}

// ------------------------------------------------------ encoder and decoder

struct PartsRow {
  bool learned = true;  // else sinusoids
  RowRule rows = RowRule::kPlain;
  SinusoidLayout layout = SinusoidLayout::kHalves;
  int64_t offset = 0;  // of sinusoids; -1: pad_token_id + 1
  Names encoder_length = {"max_position_embeddings"};
  Names decoder_length = {"max_position_embeddings"};
  bool encoder = true;  // whether there is an encoder
  const char* prefix = "";
};

std::function<void(Reader&)> Parts(PartsRow row) {
  return [row](Reader& r) {
    const bool encoder = r.IsEncoder(row.encoder, true);
    const auto size = [&](const char* key, int64_t most) {
      if (row.encoder) r.c.Int(fmt::format("encoder_{}", key).c_str(), 1, most);
      r.c.Find(fmt::format("encoder_{}", key).c_str());
      const auto decoder =
          r.c.Int(fmt::format("decoder_{}", key).c_str(), 1, most);
      return encoder ? r.c.Int(fmt::format("encoder_{}", key).c_str(), 1, most)
                     : decoder;
    };
    const int64_t heads = size("attention_heads", kMostHeads);
    const int64_t layers = size("layers", kMostLayers);
    const int64_t width = r.c.Int("d_model", 1, kMostWidth);
    if (width % heads != 0) {
      Fail("{} = {} is not a multiple of {} heads", r.c.Path("d_model"), width,
           heads);
    }
    r.Heads(width, heads, heads, width / heads);
    r.Layers(layers);
    r.Ignore(row.encoder_length);
    const int64_t length = r.c.IntOf(
        encoder ? row.encoder_length : row.decoder_length, 1, kMostLength);
    r.Ignore(row.decoder_length);
    r.NoPosition(kPlainAttention);
    if (row.learned) {
      LearnedRows(
          r, fmt::format("{}{}.embed_positions.weight", row.prefix, r.out.part),
          length, width, row.rows);
      return;
    }
    r.out.trained_length = length;
    r.Sinusoids(width, row.layout, row.offset < 0 ? PadOffset(r) : row.offset);
  };
}

// Sinusoids with the cosines before the sines.
class CosinesFirst final : public Encoding {
 public:
  explicit CosinesFirst(int64_t dim)
      : sines_first_(dim, {.layout = SinusoidLayout::kHalvesInclusive}) {}

  std::string_view Name() const override { return "sinusoidal"; }
  Lowered Lower(const Shape& shape) const override {
    Lowered lowered = sines_first_.Lower(shape);
    Swap(lowered.terms.input_add->table);
    return lowered;
  }
  Tensor Embed(std::span<const int64_t> positions) const override {
    Tensor rows = sines_first_.Embed(positions);
    Swap(rows);
    return rows;
  }

 private:
  static void Swap(Tensor& rows) {
    const int64_t width = rows.size(1);
    double* row = rows.MutableData<double>();
    for (int64_t i = 0; i < rows.size(0); ++i, row += width) {
      std::swap_ranges(row, row + width / 2, row + width / 2);
    }
  }

  Sinusoidal sines_first_;
};

void MusicGen(Reader& r) {
  SetSide(r, Side::kDecoder);
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.NoPosition(kPlainAttention);
  r.Sinusoids(r.out.model_dim, SinusoidLayout::kHalvesInclusive, 0);
  r.out.input.words = fmt::format(
      "sinusoids of width {}, [cos, sin] halves, 10000^(-i/(d/2 - 1))",
      r.out.model_dim);
  r.out.input.encoding = std::make_shared<CosinesFirst>(r.out.model_dim);
}

// A single stack with sinusoids.
struct WaveRow {
  Side side = Side::kDecoder;
  SinusoidLayout layout = SinusoidLayout::kHalves;
  int64_t offset = 0;  // -1: pad_token_id + 1
  SizeKeys sizes = {.kv_heads = {}, .head_dim = {}};
};

std::function<void(Reader&)> Waves(WaveRow row) {
  return [row](Reader& r) {
    SetSide(r, row.side);
    r.Sizes(row.sizes);
    r.NoPosition(kPlainAttention);
    r.Sinusoids(r.out.model_dim, row.layout,
                row.offset < 0 ? PadOffset(r) : row.offset);
  };
}

// ------------------------------------------------------------------- images

struct ImageRow {
  const char* tensor;
  int64_t prefix = 1;  // rows before the patches, such as [CLS]
  bool flat = false;   // stored as [rows, width] instead of [1, rows, width]
  const char* flag = nullptr;  // positions exist only if this flag is true
  SizeKeys sizes = {.kv_heads = {}, .head_dim = {}, .length = {}};
  const char* prefix_key = nullptr;  // the key for it, if a config may say
  Names ignored = {};
  const char* warning = nullptr;
};

std::function<void(Reader&)> Image(ImageRow row) {
  return [row](Reader& r) {
    r.out.part = "encoder";
    r.out.causal = false;
    r.Sizes(row.sizes);
    r.Ignore(row.ignored);
    const Sides grid = ReadPatches(r);
    const int64_t prefix = row.prefix_key != nullptr
                               ? r.c.IntOr(row.prefix_key, row.prefix, 0, 65536)
                               : row.prefix;
    const bool there = row.flag == nullptr || r.c.FlagOr(row.flag, true);
    r.NoPosition(there ? kPlainAttention : "plain attention without positions");
    if (!there) return;
    if (row.warning != nullptr) r.Warn("{}", row.warning);
    const int64_t rows = prefix + grid.height * grid.width;
    const int64_t width = r.out.model_dim;
    const Sides wanted{
        r.options.grid_height != 0 ? r.options.grid_height : grid.height,
        r.options.grid_width != 0 ? r.options.grid_width : grid.width};
    if (wanted.height != grid.height || wanted.width != grid.width) {
      Fail("{} is read at its trained {} x {} patches only, got {} x {}",
           r.out.family, grid.height, grid.width, wanted.height, wanted.width);
    }
    std::vector<int64_t> shape = {rows, width};
    if (!row.flat) shape.insert(shape.begin(), 1);
    r.out.input = TensorScheme(
        "learned",
        fmt::format("learned table, {}{} x {} rows",
                    prefix == 0 ? "" : fmt::format("{} + ", prefix),
                    grid.height, grid.width),
        {.name = row.tensor, .shape = shape, .use = "learned positions"},
        [rows, width](const Tensor& table) {
          return std::make_shared<Learned>(WithShape(table, {rows, width}));
        });
    r.out.trained_length = rows;
  };
}

// A table over audio frames.
struct SoundRow {
  const char* tensor;
  SizeKeys sizes = {
      .kv_heads = {}, .head_dim = {}, .length = {"max_source_positions"}};
};

std::function<void(Reader&)> Sound(SoundRow row) {
  return [row](Reader& r) {
    r.out.part = "encoder";
    r.out.causal = false;
    r.Sizes(row.sizes);
    r.NoPosition(kPlainAttention);
    r.Learned(row.tensor, r.out.trained_length, r.out.model_dim, 0);
  };
}

// A convolution of the input provides the order.
void ConvolvedSound(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  r.NoPosition(
      "plain attention: a convolution of the input brings the order, no table");
}

// ------------------------------------------------------- those with a twist

// A table [1, rows, width] or [rows, width], used as it is.
void WholeTable(Reader& r, const char* tensor, int64_t rows, bool flat,
                std::string words) {
  const int64_t width = r.out.model_dim;
  std::vector<int64_t> shape = {rows, width};
  if (!flat) shape.insert(shape.begin(), 1);
  r.out.input = TensorScheme(
      "learned", std::move(words),
      {.name = tensor, .shape = shape, .use = "learned positions"},
      [rows, width](const Tensor& table) {
        return std::make_shared<Learned>(WithShape(table, {rows, width}));
      });
  r.out.trained_length = rows;
}

// Overlapping patches of a spectrogram after two special tokens.
void Spectrogram(Reader& r) {
  SetSide(r, Side::kEncoder);
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const int64_t patch = r.c.Int("patch_size", 1, 65536);
  const auto count = [&](const char* size_key, const char* stride_key) {
    const int64_t size = r.c.Int(size_key, 1, 1 << 20);
    const int64_t stride = r.c.Int(stride_key, 1, 65536);
    if (size < patch) {
      Fail("{} = {} is below {} = {}", r.c.Path(size_key), size,
           r.c.Path("patch_size"), patch);
    }
    return (size - patch) / stride + 1;
  };
  const int64_t bands = count("num_mel_bins", "frequency_stride");
  const int64_t frames = count("max_length", "time_stride");
  r.NoPosition(kPlainAttention);
  WholeTable(r, "embeddings.position_embeddings", 2 + bands * frames,
             /*flat=*/false,
             fmt::format("learned table, 2 + {} x {} rows", bands, frames));
}

// The row of the absent [CLS] token is added to every patch.
void VitPose(Reader& r) {
  SetSide(r, Side::kEncoder);
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const Sides image = ReadSides(r, "image_size");
  const Sides patch = ReadSides(r, "patch_size");
  const int64_t rows =
      (image.height / patch.height) * (image.width / patch.width);
  if (rows < 1) {
    Fail("{} is smaller than {}", r.c.Path("image_size"),
         r.c.Path("patch_size"));
  }
  const int64_t width = r.out.model_dim;
  r.NoPosition(kPlainAttention);
  r.out.input = TensorScheme(
      "learned",
      fmt::format("learned table of {} rows, each with row 0 added", rows),
      {.name = "embeddings.position_embeddings",
       .shape = {1, rows + 1, width},
       .use = "learned positions"},
      [rows, width](const Tensor& table) {
        const std::vector<double> stored = table.ToVector();
        std::vector<double> sums(stored.begin() + width, stored.end());
        for (size_t i = 0; i < sums.size(); ++i) {
          sums[i] += stored[i % static_cast<size_t>(width)];
        }
        return std::make_shared<Learned>(
            Tensor::From({rows, width}, std::move(sums)));
      });
  r.out.trained_length = rows;
}

// Patches of a time series, each channel separately.
void PatchTst(Reader& r) {
  SetSide(r, Side::kEncoder);
  r.Sizes(
      {.model_dim = {"d_model"}, .kv_heads = {}, .head_dim = {}, .length = {}});
  r.Expect("channel_attention", false);
  // Sines or random numbers: only the initial values of the table.
  r.Ignore({"positional_encoding_type"});
  const int64_t series = r.c.Int("context_length", 1, 1 << 24);
  const int64_t patch = r.c.Int("patch_length", 1, 1 << 24);
  const int64_t stride = r.c.Int("patch_stride", 1, 1 << 24);
  const int64_t rows = (std::max(series, patch) - patch) / stride + 1 +
                       (r.c.FlagOr("use_cls_token", false) ? 1 : 0);
  r.NoPosition(kPlainAttention);
  WholeTable(r, "encoder.positional_encoder.position_enc", rows, /*flat=*/true,
             fmt::format("learned table of {} patches", rows));
}

// A Fourier transform replaces attention.
void FNet(Reader& r) {
  SetSide(r, Side::kEncoder);
  r.out.model_dim = r.c.Int("hidden_size", 1, kMostWidth);
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.Learned("embeddings.position_embeddings.weight",
            r.c.Int("max_position_embeddings", 1, kMostLength), r.out.model_dim,
            0);
  r.Ignore({"tpu_short_seq_length"});
  r.NoAttention("no attention: a Fourier transform mixes the tokens");
}

// Every other layer has a window; scores are not scaled.
void GptNeo(Reader& r) {
  r.Sizes({.q_heads = {"num_heads"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"num_layers"}});
  r.out.scale = 1.0;
  const int64_t width = r.c.Int("window_size", 1, kMostLength);
  // [[["global", "local"], 12]]: patterns and how often each repeats.
  const Json* patterns = r.c.Find("attention_types");
  std::vector<std::string> types;
  if (const auto list = r.c.MaybeTexts("attention_layers",
                                       static_cast<size_t>(kMostLayers))) {
    types = *list;
  } else if (patterns != nullptr && patterns->is_array()) {
    for (const Json& entry : *patterns) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_array() ||
          !entry[1].is_number_integer() || entry[1] < 1 ||
          entry[1] > kMostLayers) {
        Fail("an entry of {} must be a list of types and a number",
             r.c.Path("attention_types"));
      }
      for (int64_t i = 0; i < entry[1].get<int64_t>(); ++i) {
        for (const Json& type : entry[0]) {
          if (!type.is_string() ||
              types.size() > static_cast<size_t>(kMostLayers)) {
            Fail("{} must list global and local", r.c.Path("attention_types"));
          }
          types.push_back(type.get<std::string>());
        }
      }
    }
  }
  if (static_cast<int64_t>(types.size()) != r.out.layers) {
    Fail("{} gives {} layers, but there are {}", r.c.Path("attention_types"),
         types.size(), r.out.layers);
  }
  const std::string& type = types[static_cast<size_t>(r.out.layer)];
  if (type != "global" && type != "local") {
    Fail("{} has the entry '{}', known values: global, local",
         r.c.Path("attention_types"), Printable(type));
  }
  r.out.layer_type = type;
  if (type == "local") r.CausalWindow(width);
  r.NoPosition(kPlainAttention);
  r.Learned("wpe.weight", r.out.trained_length, r.out.model_dim, 0);
}

void ImageGpt(Reader& r) {
  r.Sizes(Gpt2Sizes());
  ReadGpt2Scale(r);
  r.NoPosition(kPlainAttention);
  r.Learned("wpe.weight", r.out.trained_length, r.out.model_dim, 0);
}

// Attention acts on a bottleneck narrower than the model.
void MobileBert(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const bool narrow = r.c.FlagOr("use_bottleneck", true);
  const int64_t inside = r.c.IntOr("intra_bottleneck_size", 128, 1, kMostWidth);
  const int64_t width = narrow ? inside : r.out.model_dim;
  if (width % r.out.q_heads != 0) {
    Fail("{} = {} is not a multiple of {} heads",
         r.c.Path("intra_bottleneck_size"), width, r.out.q_heads);
  }
  const int64_t outside = r.out.model_dim, length = r.out.trained_length;
  r.Heads(outside, r.out.q_heads, r.out.q_heads, width / r.out.q_heads);
  r.Ignore({"true_hidden_size", "key_query_shared_bottleneck"});
  r.NoPosition(kPlainAttention);
  r.Learned("embeddings.position_embeddings.weight", length, outside, 0);
}

// XLM and FlauBERT: a table, or sinusoids that initialise it.
void Xlm(Reader& r) {
  const bool causal = r.c.FlagOr("causal", false);
  r.out.part = causal ? "decoder" : "encoder";
  r.out.causal = causal;
  r.Sizes({.model_dim = {"emb_dim"},
           .q_heads = {"n_heads"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"n_layers"}});
  r.Ignore({"sinusoidal_embeddings", "is_encoder"});
  r.NoPosition(kPlainAttention);
  r.Learned("position_embeddings.weight", r.out.trained_length, r.out.model_dim,
            0);
}

}  // namespace

std::vector<Family> TableFamilies() {
  const char* const rows = "embeddings.position_embeddings.weight";
  const char* const clip = "embeddings.position_embedding.weight";
  const char* const patches = "embeddings.position_embeddings";
  std::vector<Family> families = {
      {{"BERT's kin",
        {"align_text_model", "chinese_clip_text_model", "dpr",
         "flava_text_model", "splinter"},
        "learned table",
        ""},
       Text({.tensor = rows})},
      {{"BERT's kin, encoder or decoder",
        {"ernie", "megatron-bert", "roc_bert", "bert-generation",
         "blip_text_model"},
        "learned table",
        "`is_decoder` makes them causal"},
       Text({.tensor = rows,
             .side = Side::kByFlag,
             .ignored = {"encoder_hidden_size"}})},
      {{"RemBERT, SqueezeBERT",
        {"rembert", "squeezebert"},
        "learned table, narrower than the model",
        "`input_embedding_size` or `embedding_size` is its width"},
       Text({.tensor = rows,
             .side = Side::kByFlag,
             .width = {"input_embedding_size", "embedding_size"},
             .ignored = {"q_groups", "k_groups", "v_groups"}})},
      {{"MobileBERT",
        {"mobilebert"},
        "learned table",
        "heads are of the bottleneck, 128 / 4 channels"},
       MobileBert},
      {{"RoBERTa's kin",
        {"altclip_text_model", "bridgetower_text_model", "clap_text_model",
         "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "xmod",
         "ibert"},
        "learned table",
        "position p takes row p + padding_idx + 1"},
       Text({.tensor = rows, .side = Side::kByFlag, .rows = RowRule::kPadded})},
      {{"Nystromformer, YOSO, MRA",
        {"nystromformer", "yoso", "mra"},
        "learned table",
        "two more rows than positions; attention itself is approximated"},
       Text({.tensor = rows, .rows = RowRule::kTwo})},
      {{"LayoutLM",
        {"layoutlm"},
        "learned table",
        "boxes have tables of their own, added besides"},
       Text({.tensor = rows,
             .ignored = {"max_2d_position_embeddings"},
             .warning = "rows by the corners of each token's box are added "
                        "besides"})},
      {{"MarkupLM",
        {"markuplm"},
        "learned table",
        "position p takes row p + padding_idx + 1; paths of nodes have tables "
        "of their own"},
       Text({.tensor = rows,
             .rows = RowRule::kPadded,
             .warning = "embeddings of each token's path are added besides"})},
      {{"Cohere ASR",
        {"cohere_asr"},
        "learned table",
        "its encoder is a Parakeet, under encoder_config"},
       Text({.tensor = "decoder.pos_emb.weight",
             .side = Side::kDecoder,
             .sizes = {},
             .ignored = {"encoder_config"}})},
      {{"AIMv2 text",
        {"aimv2_text_model"},
        "learned table",
        "causal, although it is an encoder of text"},
       Text({.tensor = clip, .side = Side::kDecoder})},
      {{"MusicGen",
        {"musicgen_decoder", "musicgen_melody_decoder"},
        "sinusoids, [cos, sin] halves, 10000^(-i/(d/2 - 1))",
        "cosines stand before sines"},
       MusicGen},
      {{"PatchTST",
        {"patchtst"},
        "learned table",
        "one row per patch of the series"},
       PatchTst},
      {{"FNet", {"fnet"}, "learned table, no attention", ""}, FNet},
      {{"Audio spectrogram transformer",
        {"audio-spectrogram-transformer"},
        "learned table, two special tokens first",
        "patches overlap: strides, not sizes, count them"},
       Spectrogram},
      {{"ViTPose",
        {"vitpose_backbone"},
        "learned table",
        "the row of [CLS] is added to every patch"},
       VitPose},
      {{"MGP-STR", {"mgp-str"}, "learned table, [CLS] first", ""},
       Image({.tensor = "embeddings.pos_embed"})},
      {{"Molmo 2 vision", {"molmo2_vision"}, "learned table, no [CLS]", ""},
       Image({.tensor = "positional_embedding",
              .prefix = 0,
              .flat = true,
              .sizes = {.length = {}},
              .ignored = {"num_position_embeddings"}})},
      {{"CLIP text",
        {"clip_text_model", "clipseg_text_model", "metaclip_2_text_model",
         "owlvit_text_model", "owlv2_text_model", "xclip_text_model",
         "groupvit_text_model"},
        "learned table",
        "causal, although it is an encoder of text"},
       Text({.tensor = clip, .side = Side::kDecoder})},
      {{"SigLIP text",
        {"siglip_text_model", "siglip2_text_model"},
        "learned table",
        "attends both ways, unlike CLIP"},
       Text({.tensor = clip})},
      {{"GPT", {"openai-gpt"}, "learned table", ""},
       Text({.tensor = "positions_embed.weight",
             .side = Side::kDecoder,
             .sizes = Gpt2Sizes()})},
      {{"GPT-Neo",
        {"gpt_neo"},
        "learned table; every other layer slides",
        "scores are not scaled"},
       GptNeo},
      {{"ImageGPT", {"imagegpt"}, "learned table", "one token a pixel"},
       ImageGpt},
      {{"BioGPT",
        {"biogpt"},
        "learned table",
        "two more rows than positions; position p takes row p + 2"},
       Text({.tensor = "embed_positions.weight",
             .side = Side::kDecoder,
             .rows = RowRule::kTwo})},
      {{"XLM, FlauBERT",
        {"xlm", "flaubert"},
        "learned table",
        "`sinusoidal_embeddings` only fills it; `causal` makes a decoder"},
       Xlm},
      {{"CTRL", {"ctrl"}, "sinusoids, [sin, cos] halves, 10000^(-2i/d)", ""},
       Waves({.sizes = Gpt2Sizes()})},
      {{"XGLM",
        {"xglm"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at 2"},
       Waves({.layout = SinusoidLayout::kHalvesInclusive,
              .offset = 2,
              .sizes = {.model_dim = {"d_model"},
                        .q_heads = {"attention_heads"},
                        .kv_heads = {},
                        .head_dim = {},
                        .layers = {"num_layers"}}})},
      {{"Kosmos-2 text",
        {"kosmos_2_text_model", "kosmos_2_5_text_model"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at padding_idx + 1"},
       Waves({.layout = SinusoidLayout::kHalvesInclusive,
              .offset = -1,
              .sizes = {.model_dim = {"embed_dim"},
                        .q_heads = {"attention_heads"},
                        .kv_heads = {},
                        .head_dim = {},
                        .layers = {"layers"}}})},
      {{"Blenderbot", {"blenderbot"}, "learned table, one a part", ""},
       Parts({})},
      {{"FSMT",
        {"fsmt"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at padding_idx + 1"},
       Parts({.learned = false,
              .layout = SinusoidLayout::kHalvesInclusive,
              .offset = -1})},
      {{"TIPS v2 text",
        {"tipsv2_text_model"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "attends both ways"},
       Waves({.side = Side::kEncoder,
              .layout = SinusoidLayout::kHalvesInclusive})},
      {{"DPT", {"dpt"}, "learned table, [CLS] first", "`is_hybrid` is refused"},
       [patches](Reader& r) {
         r.Expect("is_hybrid", false);
         Image({.tensor = patches})(r);
       }},
      {{"FLAVA multimodal",
        {"flava_multimodal_model"},
        "no position",
        "its inputs have their positions from the towers"},
       [](Reader& r) {
         r.out.part = "encoder";
         r.out.causal = false;
         r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
         r.NoPosition("plain attention: its inputs come from other models");
       }},
      {{"BridgeTower vision",
        {"bridgetower_vision_model"},
        "learned table, [CLS] first",
        "heads of 64 channels, whatever the width"},
       [clip](Reader& r) {
         const int64_t width = r.c.Int("hidden_size", 64, kMostWidth);
         Image({.tensor = clip,
                .flat = true,
                .sizes = {.q_heads = {},
                          .kv_heads = {},
                          .head_dim = {},
                          .length = {},
                          .default_heads = std::max<int64_t>(width / 64, 1)}})(
             r);
       }},
      {{"SigLIP 2 vision",
        {"siglip2_vision_model", "cosmos3_edge_vision"},
        "learned table, no [CLS]",
        "the table is resized to each image"},
       [clip](Reader& r) {
         r.out.part = "encoder";
         r.out.causal = false;
         r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {"num_patches"}});
         r.Ignore({"patch_size"});
         r.NoPosition(kPlainAttention);
         r.Learned(clip, r.out.trained_length, r.out.model_dim, 0);
         r.Warn(
             "the table is resized to each image by the model's own code; as "
             "it stands it serves the trained size");
       }},
      {{"ViViT",
        {"vivit"},
        "learned table, [CLS] first",
        "one row per tubelet of several frames"},
       [patches](Reader& r) {
         r.out.part = "encoder";
         r.out.causal = false;
         r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
         const Sides image = ReadSides(r, "image_size");
         const auto tubelet = r.c.MaybeInts("tubelet_size", 3);
         const int64_t frames = r.c.Int("num_frames", 1, 65536);
         if (!tubelet || tubelet->size() != 3 || (*tubelet)[0] < 1 ||
             (*tubelet)[1] < 1 || (*tubelet)[2] < 1) {
           Fail("{} must have 3 sizes", r.c.Path("tubelet_size"));
         }
         const int64_t rows = 1 + (frames / (*tubelet)[0]) *
                                      (image.height / (*tubelet)[1]) *
                                      (image.width / (*tubelet)[2]);
         const int64_t width = r.out.model_dim;
         r.NoPosition(kPlainAttention);
         r.out.input = TensorScheme(
             "learned", fmt::format("learned table of {} rows", rows),
             {.name = patches,
              .shape = {1, rows, width},
              .use = "learned positions"},
             [rows, width](const Tensor& table) {
               return std::make_shared<Learned>(
                   WithShape(table, {rows, width}));
             });
         r.out.trained_length = rows;
       }},
      {{"VideoMAE",
        {"videomae"},
        "sinusoids, interleaved",
        "one position per tubelet of two frames; no [CLS]"},
       [](Reader& r) {
         r.out.part = "encoder";
         r.out.causal = false;
         r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
         const Sides image = ReadSides(r, "image_size");
         const Sides patch = ReadSides(r, "patch_size");
         const int64_t frames = r.c.Int("num_frames", 1, 65536) /
                                r.c.Int("tubelet_size", 1, 65536);
         r.Ignore({"decoder_num_attention_heads", "decoder_num_hidden_layers"});
         r.NoPosition(kPlainAttention);
         r.Sinusoids(r.out.model_dim, SinusoidLayout::kInterleaved, 0);
         r.out.trained_length = frames * (image.height / patch.height) *
                                (image.width / patch.width);
       }},
      {{"MVP",
        {"mvp"},
        "learned table, one a part",
        "position p takes row p + 2"},
       Parts({.rows = RowRule::kTwo})},
      {{"TrOCR", {"trocr"}, "learned table", "position p takes row p + 2"},
       [](Reader& r) {
         if (!r.c.FlagOr("use_learned_position_embeddings", true)) {
           Parts({.learned = false,
                  .layout = SinusoidLayout::kHalvesInclusive,
                  .offset = -1,
                  .encoder = false})(r);
         } else {
           Parts({.rows = RowRule::kTwo, .encoder = false, .prefix = "model."})(
               r);
         }
       }},
      {{"PP-FormulaNet text",
        {"pp_formulanet_text"},
        "learned table",
        "position p takes row p + 2; the encoder's sizes are unused"},
       [](Reader& r) {
         r.Ignore({"encoder_layers", "encoder_attention_heads"});
         Parts({.rows = RowRule::kTwo, .encoder = false})(r);
       }},
      {{"Pegasus",
        {"pegasus"},
        "sinusoids, [sin, cos] halves, 10000^(-2i/d)",
        ""},
       Parts({.learned = false})},
      {{"NLLB-MoE",
        {"nllb-moe"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at padding_idx + 1"},
       Parts({.learned = false,
              .layout = SinusoidLayout::kHalvesInclusive,
              .offset = -1})},
      {{"Speech2Text",
        {"speech_to_text"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at padding_idx + 1; sound and text have lengths of "
        "their own"},
       Parts({.learned = false,
              .layout = SinusoidLayout::kHalvesInclusive,
              .offset = -1,
              .encoder_length = {"max_source_positions"},
              .decoder_length = {"max_target_positions"}})},
      {{"Whisper's kin",
        {"qwen2_audio_encoder", "voxtral_encoder", "audioflamingo3_encoder",
         "moss_transcribe_diarize_audio"},
        "learned table over frames",
        "filled with sinusoids before training"},
       Sound({.tensor = "embed_positions.weight",
              .sizes = {.model_dim = {"d_model", "hidden_size"},
                        .q_heads = {"encoder_attention_heads",
                                    "num_attention_heads"},
                        .kv_heads = {},
                        .head_dim = {},
                        .layers = {"encoder_layers", "num_hidden_layers"},
                        .length = {"max_source_positions"}}})},
      {{"wav2vec 2.0's kin",
        {"wav2vec2", "hubert", "unispeech", "unispeech-sat", "sew",
         "data2vec-audio"},
        "no table: a convolution of the input",
        "order comes from a convolution of the input, attention is plain"},
       ConvolvedSound},
      {{"CLIP vision",
        {"clip_vision_model", "clipseg_vision_model", "altclip_vision_model",
         "chinese_clip_vision_model", "metaclip_2_vision_model",
         "git_vision_model", "owlvit_vision_model", "owlv2_vision_model",
         "kosmos_2_vision_model", "unlimited_ocr_vision_encoder"},
        "learned table, [CLS] first",
        ""},
       Image({.tensor = clip, .flat = true})},
      {{"IDEFICS vision", {"idefics_vision"}, "learned table, [CLS] first", ""},
       Image({.tensor = clip,
              .flat = true,
              .sizes = {.model_dim = {"embed_dim"},
                        .kv_heads = {},
                        .head_dim = {},
                        .length = {}}})},
      {{"BLIP vision",
        {"blip_vision_model", "blip_2_vision_model",
         "instructblip_vision_model", "instructblipvideo_vision_model"},
        "learned table, [CLS] first",
        ""},
       Image({.tensor = "embeddings.position_embedding"})},
      {{"ViT's kin",
        {"dinov2", "dinov2_with_registers", "vit_mae", "vit_msn",
         "flava_image_model", "tipsv2_vision_model"},
        "learned table, [CLS] first",
        "registers, where there are any, have no positions"},
       Image({.tensor = patches,
              .ignored = {"num_register_tokens", "decoder_num_attention_heads",
                          "decoder_num_hidden_layers"}})},
      {{"InternVL vision",
        {"internvl_vision", "qianfan_ocr_vision"},
        "learned table, [CLS] first",
        "`use_absolute_position_embeddings` may turn it off"},
       Image({.tensor = patches, .flag = "use_absolute_position_embeddings"})},
      {{"Pixio", {"pixio"}, "learned table, several [CLS] first", ""},
       Image({.tensor = patches, .prefix_key = "n_cls_tokens"})},
      {{"SigLIP vision",
        {"siglip_vision_model", "janus_vision_model", "ovis2_vision"},
        "learned table, no [CLS]",
        ""},
       Image({.tensor = clip, .prefix = 0, .flat = true})},
      {{"AIMv2 vision",
        {"aimv2_vision_model"},
        "learned table, no [CLS]",
        "`is_native` means 2-D sinusoids and is refused"},
       [clip](Reader& r) {
         r.Expect("is_native", false);
         Image({.tensor = clip, .prefix = 0, .flat = true})(r);
       }},
      {{"I-JEPA", {"ijepa"}, "learned table, no [CLS]", ""},
       Image({.tensor = patches, .prefix = 0})},
      {{"EoMT",
        {"eomt"},
        "learned table, no [CLS]",
        "[CLS], registers and queries have no positions"},
       Image({.tensor = rows,
              .prefix = 0,
              .flat = true,
              .ignored = {"num_register_tokens"}})},
      {{"Idefics 2, 3, SmolVLM vision",
        {"idefics2_vision", "idefics3_vision", "smolvlm_vision",
         "phi4_multimodal_vision"},
        "learned table, no [CLS]",
        "smaller images take rows by their share of the whole side"},
       Image({.tensor = clip,
              .prefix = 0,
              .flat = true,
              .warning = "an image that is not whole takes the rows of its "
                         "patches' shares of the side: give those positions"})},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
