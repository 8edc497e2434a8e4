#pragma once
#include "base/good.h"
inline int g() { return static_cast<int>(f().size()); }
