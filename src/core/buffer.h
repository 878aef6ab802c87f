// Scratch memory aligned for any vector.
#ifndef LOCUS_SRC_CORE_BUFFER_H_
#define LOCUS_SRC_CORE_BUFFER_H_

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
    const size_t bytes =
        (static_cast<size_t>(count) * sizeof(float) + 63) & ~size_t{63};
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = count;
  }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

}  // namespace locus

#endif  // LOCUS_SRC_CORE_BUFFER_H_
