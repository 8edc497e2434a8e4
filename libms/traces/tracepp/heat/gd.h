// The part of GD's C interface that draws text and rectangles into a PNG, declared by ourselves so that neither
// building nor running needs its header: only a PNG looks for the library. Names and types are those of gd.h 2.3.3;
// 2.0.1 has them, too. Private to png.cpp.
#pragma once

#include <string>

namespace ms::tracepp::gd {

using Image = void*;

// gdFont: characters of one size, from 32 on.
struct Font {
  int count, first, width, height;
  const char* dots;
};

struct Api {
  Image (*create)(int width, int height);
  void (*destroy)(Image);
  void (*fill)(Image, int x1, int y1, int x2, int y2, int colour);  // both corners are in it
  void (*text)(Image, const Font*, int x, int y, const unsigned char* text, int colour);
  const Font* (*font)();
  void* (*png)(Image, int* size_bytes);
  void (*free)(void*);
};

// The library where this machine has it, opened once; else nullptr, and `why` says so.
const Api* api(std::string& why);

}  // namespace ms::tracepp::gd
