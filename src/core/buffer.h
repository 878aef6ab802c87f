// Scratch memory, aligned for any SIMD vector.
#ifndef LOCUS_SRC_CORE_BUFFER_H_
#define LOCUS_SRC_CORE_BUFFER_H_

#include <cstdint>
#include <utility>

namespace locus {

// An uninitialised array of floats, aligned to 64 bytes: a cache line and the
// widest vector. Large arrays are recycled between calls, since faulting in new
// pages costs more than the work of a short call.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(int64_t count) { Resize(count); }
  FloatBuffer(FloatBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  FloatBuffer& operator=(FloatBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~FloatBuffer();

  // Growing discards the contents; the array never shrinks. Throws
  // std::bad_alloc.
  void Resize(int64_t count);
  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  float* data_ = nullptr;
  int64_t capacity_ = 0;  // floats
};

}  // namespace locus

#endif  // LOCUS_SRC_CORE_BUFFER_H_
