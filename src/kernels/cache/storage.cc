#include "kernels/cache/storage.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace locus::kernels {
namespace {

Tensor Copied(const Tensor& from, int64_t used, int64_t room) {
  if (!from.defined()) return {};
  const int64_t batch = from.size(0), heads = from.size(1), dim = from.size(3);
  Tensor to = Tensor::Empty(from.dtype(), {batch, heads, room, dim});
  const Rows rows(from);
  for (int64_t b = 0; b < batch && used > 0; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      std::memcpy(RowOf(to, b, h, 0), rows.Row(b, h, 0),
                  static_cast<size_t>(used * dim * DTypeBytes(from.dtype())));
    }
  }
  return to;
}

void MoveDown(Tensor& rows, int64_t b, int64_t begin, int64_t end,
              int64_t to) noexcept {
  if (!rows.defined() || begin == end) return;
  const int64_t bytes = rows.size(3) * DTypeBytes(rows.dtype());
  for (int64_t h = 0; h < rows.size(1); ++h) {
    std::memmove(RowOf(rows, b, h, to), RowOf(rows, b, h, begin),
                 static_cast<size_t>((end - begin) * bytes));
  }
}

}  // namespace

CachedRows NewRows(const KvCacheConfig& config, int64_t room, int64_t dim) {
  CachedRows made{
      .rows = Tensor::Empty(config.dtype,
                            {config.batch, config.kv_heads, room, dim})};
  if (config.dtype == DType::kI8) {
    made.scales =
        Tensor::Empty(DType::kF32, {config.batch, config.kv_heads, room, 1});
  }
  return made;
}

CachedRows FirstChannels(const CachedRows& from, int64_t dim) {
  std::vector<int64_t> shape = from.rows.shape();
  shape[3] = dim;
  return {.rows = Tensor::Borrow(from.rows.dtype(), std::move(shape),
                                 from.rows.strides(), from.rows.Raw(),
                                 std::make_shared<Tensor>(from.rows)),
          .scales = from.scales};
}

CachedRows CopyRows(const CachedRows& from, int64_t used, int64_t room) {
  return {.rows = Copied(from.rows, used, room),
          .scales = Copied(from.scales, used, room)};
}

void MoveRowsDown(CachedRows& rows, int64_t b, int64_t begin, int64_t end,
                  int64_t to) noexcept {
  MoveDown(rows.rows, b, begin, end, to);
  MoveDown(rows.scales, b, begin, end, to);
}

void WriteRow(CachedRows& to, int64_t b, int64_t h, int64_t i,
              const float* row) noexcept {
  void* at = RowOf(to.rows, b, h, i);
  const int64_t dim = to.rows.size(3);
  if (!to.scales.defined()) {
    StoreFloats(row, dim, to.rows.dtype(), at);
    return;
  }
  *static_cast<float*>(RowOf(to.scales, b, h, i)) =
      Quantize(row, dim, static_cast<int8_t*>(at));
}

}  // namespace locus::kernels
