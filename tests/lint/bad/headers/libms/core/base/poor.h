#pragma once
inline std::vector<int> f() { return {}; }
