#pragma once
#include <vector>
inline std::vector<int> f() { return {}; }
