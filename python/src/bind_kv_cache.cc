// KvCache: keys and values of the tokens so far.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/encodings/rope2d.h"
#include "locus/kv_cache.h"
#include "locus/tensor.h"
#include "numbers.h"
#include "options.h"
#include "shared_cache.h"
#include "signature.h"

namespace locus::python {
namespace {

constexpr Word<DType> kTypes[] = {{"float32", DType::kF32},
                                  {"bfloat16", DType::kBF16},
                                  {"float16", DType::kF16},
                                  {"int8", DType::kI8}};

void Make(SharedCache* self, const Arguments& a) {
  new (self)
      SharedCache(KvCache({.batch = a.Int("batch"),
                           .kv_heads = a.Int("kv_heads"),
                           .head_dim = a.Int("head_dim"),
                           .value_dim = a.IntOrNone("value_dim").value_or(0),
                           .dtype = a.Choice("dtype", kTypes),
                           .capacity = a.Int("capacity"),
                           .q_heads = a.IntOrNone("q_heads").value_or(0),
                           .values_in_keys = a.Flag("values_in_keys")}));
}

void Append(SharedCache& self, const Arguments& a) {
  const Borrowed k_in = BorrowData("k", a["k"]);
  std::optional<Borrowed> v_in;
  if (!a["v"].is_none()) v_in.emplace(BorrowData("v", a["v"]));
  const Tensor& keys = k_in.tensor();
  std::vector<int64_t> at, sizes;
  if (keys.rank() == 4) {
    at = IntegersOrNone("positions", a["positions"],
                        {{keys.size(2)}, {keys.size(0), keys.size(2)}});
    sizes = IntegersOrNone("lengths", a["lengths"], {{keys.size(0)}});
  }
  const AppendOptions options{
      .positions = at, .lengths = sizes, .threads = a.Threads()};
  const Encoding& position = EncodingOf(a["encoding"]);
  const Tensor values = v_in ? v_in->tensor() : Tensor();
  self.Write(
      [&](KvCache& cache) { cache.Append(k_in, values, position, options); });
}

nb::object Decode(const SharedCache& self, const Arguments& a) {
  const nb::handle q = a["q"];
  const Borrowed q_in = BorrowData("q", q);
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, q_in);
  const AttentionResult result = self.Read([&](const KvCache& cache) {
    return cache.Decode(q_in, position, DecodeOptions::From(options.options));
  });
  return ResultOf(result, q);
}

nb::object DecodeOverPages(const Arguments& a) {
  const nb::handle q = a["q"];
  const Borrowed q_in = BorrowData("q", q),
                 k_in = BorrowData("k_pages", a["k_pages"]),
                 v_in = BorrowData("v_pages", a["v_pages"]);
  std::vector<int64_t> table, lengths;
  if (q_in.tensor().rank() == 4) {
    const int64_t batch = q_in.tensor().size(0);
    table = Integers("block_table", a["block_table"], {{batch, -1}});
    lengths = Integers("lengths", a["lengths"], {{batch}});
  }
  const Encoding& position = EncodingOf(a["encoding"]);
  const Options options(a, q_in, q_in);
  const AttentionResult result = Compute([&] {
    return DecodePages(
        q_in, {.k = k_in, .v = v_in, .block_table = table, .lengths = lengths},
        position, DecodeOptions::From(options.options));
  });
  return ResultOf(result, q);
}

// A copy: views of the cache would end with the next append. Integers as the
// floats that they stand for.
Tensor Copied(const Tensor& view, const Tensor& scales) {
  if (scales.defined()) {
    std::vector<float> values;
    const std::vector<double> q = view.ToVector(), s = scales.ToVector();
    const auto dim = static_cast<size_t>(view.size(3));
    values.reserve(q.size());
    for (size_t n = 0; n < q.size(); ++n) {
      values.push_back(static_cast<float>(q[n] * s[n / dim]));
    }
    return Tensor::From(view.shape(), std::move(values));
  }
  Tensor copy = view.To(DType::kF32).To(view.dtype());
  if (copy.dtype() == DType::kF32 && view.IsContiguous()) {
    copy = view.To(DType::kF64).To(DType::kF32);
  }
  return copy;
}

// What a member of the cache gives, read under the lock.
template <typename Result>
auto Reading(Result (KvCache::*member)() const) {
  return [member](const SharedCache& self) {
    return self.Read([&](const KvCache& cache) { return (cache.*member)(); });
  };
}

void BindReaders(nb::class_<SharedCache>& type) {
  type.def("__len__", [](const SharedCache& self) {
    return static_cast<size_t>(
        self.Read([](const KvCache& cache) { return cache.size(); }));
  });
  Method(
      type, "length(b: int = 0) -> int", "Tokens of one sequence.",
      [](const SharedCache& self, const Arguments& a) {
        const int64_t b = a.Int("b");
        return self.Read([&](const KvCache& cache) { return cache.size(b); });
      });
  Method(type, "positions(b: int = 0) -> list[int]",
         "Positions of the tokens of one sequence.",
         [](const SharedCache& self, const Arguments& a) {
           const int64_t b = a.Int("b");
           return self.Read([&](const KvCache& cache) {
             const std::span<const int64_t> at = cache.positions(b);
             return std::vector<int64_t>(at.begin(), at.end());
           });
         });
  type.def_prop_ro("capacity", Reading(&KvCache::capacity))
      .def_prop_ro("table_id", Reading(&KvCache::table_id),
                   "What rotated the keys: 0 if nothing did.")
      .def_prop_ro(
          "keys",
          [](const SharedCache& self) {
            return ToNumpy(self.Read([](const KvCache& cache) {
              return Copied(cache.keys(), cache.key_scales());
            }));
          },
          "A copy of the stored keys, [B, Hkv, size, D]; of int8 the float32 "
          "numbers that they stand for.")
      .def_prop_ro(
          "values",
          [](const SharedCache& self) {
            return ToNumpy(self.Read([](const KvCache& cache) {
              return Copied(cache.values(), cache.value_scales());
            }));
          },
          "A copy of the stored values, [B, Hkv, size, Dv]; of int8 the "
          "float32 numbers that they stand for.");
}

void BindEdits(nb::class_<SharedCache>& type) {
  Method(type, "truncate(n: int, sequence: int | None = None)",
         "Keeps the first n tokens of one sequence, or of all.",
         [](SharedCache& self, const Arguments& a) {
           const int64_t n = a.Int("n");
           const std::optional<int64_t> sequence = a.IntOrNone("sequence");
           self.Write([&](KvCache& cache) { cache.Truncate(n, sequence); });
         });
  Method(
      type, "evict(begin: int, end: int, sequence: int | None = None)",
      "Removes tokens begin .. end - 1 of one sequence, or of all. The "
      "others keep their positions.",
      [](SharedCache& self, const Arguments& a) {
        const int64_t begin = a.Int("begin"), end = a.Int("end");
        const std::optional<int64_t> sequence = a.IntOrNone("sequence");
        self.Write([&](KvCache& cache) { cache.Evict(begin, end, sequence); });
      });
  Method(
      type,
      "shift(delta: int, sequence: int | None = None, *, begin: int = 0, end: "
      "int | None = None)",
      "Moves the positions of tokens begin .. end - 1, by default of all, of "
      "one sequence or of all, by delta, and rotates their keys along. Keys "
      "that are stored unrotated stay as they are; packed positions of MRope "
      "are refused.",
      [](SharedCache& self, const Arguments& a) {
        const int64_t delta = a.Int("delta"), begin = a.Int("begin");
        const std::optional<int64_t> sequence = a.IntOrNone("sequence");
        const std::optional<int64_t> end = a.IntOrNone("end");
        self.Write(
            [&](KvCache& cache) { cache.Shift(delta, sequence, begin, end); });
      });
  Method(type, "clear()", "Forgets all tokens; keeps the memory.",
         [](SharedCache& self, const Arguments&) {
           self.Write([](KvCache& cache) { cache.Clear(); });
         });
  Method(type, "fork() -> KvCache",
         "An independent copy, with memory of its own: one pass over the "
         "cached tokens.",
         [](const SharedCache& self, const Arguments&) {
           KvCache copy =
               self.Read([](const KvCache& cache) { return cache.Fork(); });
           return nb::cast(std::make_unique<SharedCache>(std::move(copy)));
         });
}

}  // namespace

void BindKvCache(nb::module_& m) {
  nb::class_<SharedCache> type(
      m, "KvCache",
      "Keys and values of the tokens so far, for decoding token by "
      "token.\n\n"
      "Keys are stored rotated, once, when they are appended. dtype "
      "(\"float32\", \"bfloat16\", \"float16\" or \"int8\") is storage; "
      "arithmetic is in float32. int8 keeps one scale per token and head, for "
      "keys and for values, and is off by at most max|x| / 254 of that row; a "
      "row with a NaN or an infinity is read as NaN. values_in_keys: values "
      "are "
      "the first value_dim channels of the keys, which alone are stored; "
      "append takes no v, and a rotation must lie behind those channels. "
      "q_heads: of the encodings, where they differ from kv_heads. A "
      "cache whose keys were rotated by one table refuses another, see "
      "rerotate.\n\n"
      "Threads may share a cache: calls that read run side by side, one that "
      "changes it runs alone.");
  Constructor(type,
              "KvCache(kv_heads: int, head_dim: int, value_dim: int | None = "
              "None, *, batch: int = 1, dtype: str = 'float32', capacity: int "
              "= 0, q_heads: int | None = None, values_in_keys: bool = False)",
              &Make);
  Method(type,
         "append(k: Any, v: Any | None = None, encoding: Encoding | None = "
         "None, *, "
         "positions: Any | None = None, lengths: Any | None = None, threads: "
         "int | None = None)",
         "Adds unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, "
         "Dv].\n\n"
         "positions: integers [n] or [B, n], by default each sequence goes "
         "on by one, and after packed positions of MRope above the largest "
         "coordinate. lengths [B]: only so many tokens of a sequence.",
         &Append);
  Method(type,
         std::string("decode(q: Any, encoding: Encoding | None = None, *, "
                     "causal: bool = True, ") +
             kMaskKeywords +
             "q_positions: Any | None = None, key_lengths: Any | None = None, "
             "by_index: bool = False, " +
             kOperandKeywords +
             "return_lse: bool = False, return_weights: bool = False, threads: "
             "int | None = None) -> Any",
         "Attends q [B, Hq, Lq, D], unrotated, over everything cached. By "
         "default the queries are the last Lq tokens of their sequence, or of "
         "what key_lengths leave of it, as in attention.",
         &Decode);
  Method(
      type, "rerotate(encoding: Encoding, length: int = 0)",
      "Rotates the cached keys to another table, K' = R_new R_old^-1 K, for "
      "scalings that change with the length.",
      [](SharedCache& self, const Arguments& a) {
        const Encoding& position = EncodingOf(a["encoding"]);
        const int64_t length = a.Int("length");
        self.Write([&](KvCache& cache) { cache.Rerotate(position, length); });
      });
  BindEdits(type);
  type.def(
      "__reduce__",
      [](const SharedCache&) -> nb::object {
        throw nb::type_error(
            "a KvCache cannot be pickled or copied: fork() makes a copy in "
            "this "
            "process, and its keys, values and positions() can be pickled");
      },
      nb::sig("def __reduce__(self) -> tuple"));
  BindReaders(type);
  Function(
      m,
      std::string("decode_pages(q: Any, k_pages: Any, v_pages: Any, "
                  "block_table: Any, lengths: Any, encoding: Encoding | None = "
                  "None, *, causal: bool = True, ") +
          kMaskKeywords +
          "q_positions: Any | None = None, by_index: bool = False, " +
          kOperandKeywords +
          "return_lse: bool = False, return_weights: bool = False, threads: "
          "int | None = None) -> Any",
      "Attends q [B, Hq, Lq, D], unrotated, over tokens in blocks that the "
      "caller owns: k_pages [blocks, Hkv, block_size, D] and v_pages [blocks, "
      "Hkv, block_size, Dv], of any strides, which are read where they lie.\n\n"
      "Token i of sequence b is row i % block_size of block block_table[b, i "
      "// block_size], and its position is i. block_table: integers [B, n]; "
      "entries beyond lengths [B] are not looked at. Keys in the pages are "
      "rotated already, as KvCache stores them (not for XPos, nor with a key "
      "table). The result is that of KvCache.decode, to the bit.",
      &DecodeOverPages);
}

}  // namespace locus::python
