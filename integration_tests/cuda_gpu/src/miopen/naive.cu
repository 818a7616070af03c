// A convolution of any strides in three directions: a thread computes one element of the result, in double precision, rounded once. NVRTC compiles
// it behind the prelude of the kernels, with T the elements' type. And a kernel that gives images and filters more channels, for cuDNN.

struct Tensor { long dims[5], strides[5]; };
struct Problem { Tensor x, w, y; long groups, pad[3], step[3], dilation[3]; };

#ifdef BF16
struct Element {
  unsigned short bits;
  operator double() const { return __uint_as_float((unsigned)bits << 16); }
};
DEVICE void put(Element* to, double v) {
  // To odd, then to nearest: rounded once.
  float near = float(v);
  unsigned bits = __float_as_uint(near);
  if (v == v && !isinf(near) && double(near) != v) {
    if (fabs(double(near)) > fabs(v)) bits -= 1;
    bits |= 1;
  }
  to->bits = v != v ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#else
typedef T Element;
DEVICE void put(Element* to, double v) { *to = Element(v); }
#endif
DEVICE double get(const Element* from) {
#ifdef HALF
  return float(*from);
#else
  return double(*from);
#endif
}

// Place of an element by its indices.
DEVICE long at(const Tensor& t, long a, long b, const long* s) {
  return a * t.strides[0] + b * t.strides[1] + s[0] * t.strides[2] + s[1] * t.strides[3] + s[2] * t.strides[4];
}
// Indices of the n-th element.
DEVICE void indices(const Tensor& t, long n, long* i) {
  for (int d = 4; d >= 0; --d) i[d] = n % t.dims[d], n /= t.dims[d];
}
// True if the window at o touches the image with tap k; i is where.
DEVICE bool touches(const Problem& p, const long* o, const long* k, long* i) {
  for (int d = 0; d < 3; ++d) {
    i[d] = o[d] * p.step[d] + k[d] * p.dilation[d] - p.pad[d];
    if (i[d] < 0 || i[d] >= p.x.dims[d + 2]) return false;
  }
  return true;
}
// True if some window touches the image's element i with tap k; o is which.
DEVICE bool touched(const Problem& p, const long* i, const long* k, long* o) {
  for (int d = 0; d < 3; ++d) {
    const long from = i[d] + p.pad[d] - k[d] * p.dilation[d];
    if (from < 0 || from % p.step[d]) return false;
    o[d] = from / p.step[d];
    if (o[d] >= p.y.dims[d + 2]) return false;
  }
  return true;
}

#define EACH(i, extent) for (long i = 0; i < (extent); ++i)
#define TAPS EACH(k0, p.w.dims[2]) EACH(k1, p.w.dims[3]) EACH(k2, p.w.dims[4])

extern "C" __global__ void forward(const Problem p, const Element* x, const Element* w, Element* y, long count) {
  const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= count) return;
  long e[5], i[3];
  indices(p.y, n, e);
  const long group = e[1] / (p.y.dims[1] / p.groups), channels = p.w.dims[1];
  double sum = 0;
  TAPS {
    const long k[3] = {k0, k1, k2};
    if (!touches(p, e + 2, k, i)) continue;
    EACH(c, channels) sum += get(x + at(p.x, e[0], group * channels + c, i)) * get(w + at(p.w, e[1], c, k));
  }
  put(y + at(p.y, e[0], e[1], e + 2), sum);
}

extern "C" __global__ void backward_data(const Problem p, Element* x, const Element* w, const Element* y, long count) {
  const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= count) return;
  long e[5], o[3];
  indices(p.x, n, e);
  const long channels = p.w.dims[1], group = e[1] / channels, filters = p.y.dims[1] / p.groups;
  double sum = 0;
  TAPS {
    const long k[3] = {k0, k1, k2};
    if (!touched(p, e + 2, k, o)) continue;
    EACH(f, filters) {
      const long filter = group * filters + f;
      sum += get(y + at(p.y, e[0], filter, o)) * get(w + at(p.w, filter, e[1] - group * channels, k));
    }
  }
  put(x + at(p.x, e[0], e[1], e + 2), sum);
}

extern "C" __global__ void backward_weights(const Problem p, const Element* x, Element* w, const Element* y, long count) {
  const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= count) return;
  long e[5], i[3];
  indices(p.w, n, e);
  const long group = e[0] / (p.y.dims[1] / p.groups), channel = group * p.w.dims[1] + e[1];
  double sum = 0;
  EACH(o0, p.y.dims[2]) EACH(o1, p.y.dims[3]) EACH(o2, p.y.dims[4]) {
    const long o[3] = {o0, o1, o2};
    if (!touches(p, o, e + 2, i)) continue;
    EACH(b, p.y.dims[0]) sum += get(y + at(p.y, b, e[0], o)) * get(x + at(p.x, b, channel, i));
  }
  put(w + at(p.w, e[0], e[1], e + 2), sum);
}

#if defined(HALF) || defined(BF16)
// Copies elements, channels last, to where each place has more channels, all in whole pieces of 4: those are zeros. A thread writes one piece.
extern "C" __global__ void widen(const unsigned short* from, unsigned short* to, unsigned channels, unsigned pieces, unsigned count) {
  const unsigned n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= count) return;
  const unsigned place = n / pieces, first = n % pieces * 4;
  unsigned short piece[4];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned c = first + i;
    piece[i] = c < channels ? from[(size_t)place * channels + c] : 0;
  }
  uint2 whole;
  whole.x = piece[0] | piece[1] << 16, whole.y = piece[2] | piece[3] << 16;
  *(uint2*)(to + (size_t)n * 4) = whole;
}
#endif
