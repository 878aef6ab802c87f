// KvCache: keys and values of the tokens so far.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <span>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "locus/locus.h"
#include "numbers.h"
#include "options.h"
#include "shared_cache.h"
#include "signature.h"

namespace locus::python {
namespace {

constexpr Word<DType> kTypes[] = {{"float32", DType::kF32},
                                  {"bfloat16", DType::kBF16},
                                  {"float16", DType::kF16}};

void Make(SharedCache* self, const Arguments& a) {
  new (self) SharedCache({.batch = a.Int("batch"),
                          .kv_heads = a.Int("kv_heads"),
                          .head_dim = a.Int("head_dim"),
                          .value_dim = a.IntOrNone("value_dim").value_or(0),
                          .dtype = a.Choice("dtype", kTypes),
                          .capacity = a.Int("capacity"),
                          .q_heads = a.IntOrNone("q_heads").value_or(0)});
}

void Append(SharedCache& self, const Arguments& a) {
  const Borrowed k_in = BorrowData("k", a["k"]), v_in = BorrowData("v", a["v"]);
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
  self.Write(
      [&](KvCache& cache) { cache.Append(k_in, v_in, position, options); });
}

nb::object Decode(const SharedCache& self, const Arguments& a) {
  const nb::handle q = a["q"];
  const Borrowed q_in = BorrowData("q", q);
  const Encoding& position = EncodingOf(a["encoding"]);
  Options options(a, q_in, q_in);
  const bool return_lse = a.Flag("return_lse");
  options.options.return_lse = return_lse;
  const AttentionResult result = self.Read([&](const KvCache& cache) {
    return cache.Decode(q_in, position, DecodeOptions::From(options.options));
  });
  nb::object out = ToArray(result.out, q);
  if (!return_lse) return out;
  return nb::make_tuple(out, ToArray(result.lse, q));
}

// A copy: views of the cache would end with the next append.
Tensor Copied(const Tensor& view) {
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
            return ToNumpy(self.Read(
                [](const KvCache& cache) { return Copied(cache.keys()); }));
          },
          "A copy of the stored keys, [B, Hkv, size, D].")
      .def_prop_ro(
          "values",
          [](const SharedCache& self) {
            return ToNumpy(self.Read(
                [](const KvCache& cache) { return Copied(cache.values()); }));
          },
          "A copy of the stored values, [B, Hkv, size, Dv].");
}

}  // namespace

void BindKvCache(nb::module_& m) {
  nb::class_<SharedCache> type(
      m, "KvCache",
      "Keys and values of the tokens so far, for decoding token by "
      "token.\n\n"
      "Keys are stored rotated, once, when they are appended. dtype "
      "(\"float32\", \"bfloat16\" or \"float16\") is storage; arithmetic is in "
      "float32. q_heads: of the encodings, where they differ from kv_heads. A "
      "cache whose keys were rotated by one table refuses another, see "
      "rerotate.\n\n"
      "Threads may share a cache: calls that read run side by side, one that "
      "changes it runs alone.");
  Constructor(type,
              "KvCache(kv_heads: int, head_dim: int, value_dim: int | None = "
              "None, *, batch: int = 1, dtype: str = 'float32', capacity: int "
              "= 0, q_heads: int | None = None)",
              &Make);
  Method(type,
         "append(k: Any, v: Any, encoding: Encoding | None = None, *, "
         "positions: Any | None = None, lengths: Any | None = None, threads: "
         "int | None = None)",
         "Adds unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, "
         "Dv].\n\n"
         "positions: integers [n] or [B, n], by default each sequence goes "
         "on by one, and after packed positions of MRope above the largest "
         "coordinate. lengths [B]: only so many tokens of a sequence.",
         &Append);
  Method(type,
         "decode(q: Any, encoding: Encoding | None = None, *, causal: bool = "
         "True, scale: float | None = None, window: int | tuple[int, int] | "
         "None = None, softcap: float | None = None, q_positions: Any | None = "
         "None, key_lengths: Any | None = None, by_index: bool = False, "
         "return_lse: bool = False, "
         "threads: int | None = None) -> Any",
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
  Method(type, "truncate(n: int)",
         "Keeps the first n tokens of every sequence.",
         [](SharedCache& self, const Arguments& a) {
           const int64_t n = a.Int("n");
           self.Write([&](KvCache& cache) { cache.Truncate(n); });
         });
  Method(type, "clear()", "Forgets all tokens; keeps the memory.",
         [](SharedCache& self, const Arguments&) {
           self.Write([](KvCache& cache) { cache.Clear(); });
         });
  type.def(
      "__reduce__",
      [](const SharedCache&) -> nb::object {
        throw nb::type_error(
            "a KvCache cannot be pickled or copied: pickle its keys, values "
            "and positions() instead");
      },
      nb::sig("def __reduce__(self) -> tuple"));
  BindReaders(type);
}

}  // namespace locus::python
