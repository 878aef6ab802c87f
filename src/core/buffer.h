// Scratch memory aligned for any vector.
#ifndef LOCUS_SRC_CORE_BUFFER_H_
#define LOCUS_SRC_CORE_BUFFER_H_

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace locus {

// An uninitialised array of floats on a 64-byte boundary: one cache line, and
// the widest vector.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(int64_t count) { Resize(count); }

  // Contents are lost when it grows; it never shrinks.
  void Resize(int64_t count) {
    if (count <= capacity_) return;
    // Large arrays on large pages: walking a panel then misses the TLB a
    // thousand times less often.
    const size_t wanted = static_cast<size_t>(count) * sizeof(float);
    const size_t align = wanted >= kLargePage ? kLargePage : 64;
    const size_t bytes = (wanted + align - 1) / align * align;
    data_.reset(static_cast<float*>(std::aligned_alloc(align, bytes)));
#ifdef MADV_HUGEPAGE
    if (data_ != nullptr && align == kLargePage) {
      madvise(data_.get(), bytes, MADV_HUGEPAGE);  // a hint: may fail
    }
#endif
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = count;
  }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t capacity() const { return capacity_; }

 private:
  static constexpr size_t kLargePage = size_t{2} << 20;

  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

}  // namespace locus

#endif  // LOCUS_SRC_CORE_BUFFER_H_
