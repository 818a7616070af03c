// Reads MessagePack: as much as the metadata of code objects needs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hipemu {
struct Val
{
    enum K { Nil, Int, Str, Arr, Map } k = Nil;
    int64_t i = 0;
    std::string s;
    std::vector<Val> a;
    std::map<std::string, Val> m;
    const Val* get(const char* n) const
    {
        auto it = m.find(n);
        return it == m.end() ? nullptr : &it->second;
    }
    int64_t num(const char* n, int64_t d = 0) const
    {
        auto v = get(n);
        return v && v->k == Int ? v->i : d;
    }
    std::string str(const char* n) const
    {
        auto v = get(n);
        return v ? v->s : std::string();
    }
};
struct MsgPack
{
    const uint8_t* p;
    const uint8_t* e;
    uint64_t be(int n)
    {
        uint64_t v = 0;
        while(n-- && p < e)
            v = v << 8 | *p++;
        return v;
    }
    Val parse(int depth = 0)
    {
        Val v;
        if(p >= e || depth > 32)
            return v;
        uint8_t t = *p++;
        auto str  = [&](size_t n) {
            n   = std::min<size_t>(n, e - p);
            v.k = Val::Str;
            v.s.assign((const char*)p, n);
            p += n;
        };
        auto arr = [&](size_t n) {
            v.k = Val::Arr;
            while(n-- && p < e)
                v.a.push_back(parse(depth + 1));
        };
        auto map = [&](size_t n) {
            v.k = Val::Map;
            while(n-- && p < e)
            {
                Val k  = parse(depth + 1);
                v.m[k.s] = parse(depth + 1);
            }
        };
        auto num = [&](int64_t x) {
            v.k = Val::Int;
            v.i = x;
        };
        if(t < 0x80) num(t);
        else if(t < 0x90) map(t & 15);
        else if(t < 0xa0) arr(t & 15);
        else if(t < 0xc0) str(t & 31);
        else switch(t)
        {
        case 0xc2: num(0); break;
        case 0xc3: num(1); break;
        case 0xc4: str(be(1)); break;
        case 0xc5: str(be(2)); break;
        case 0xc6: str(be(4)); break;
        case 0xcc: num(be(1)); break;
        case 0xcd: num(be(2)); break;
        case 0xce: num(be(4)); break;
        case 0xcf: num(be(8)); break;
        case 0xd0: num((int8_t)be(1)); break;
        case 0xd1: num((int16_t)be(2)); break;
        case 0xd2: num((int32_t)be(4)); break;
        case 0xd3: num(be(8)); break;
        case 0xd9: str(be(1)); break;
        case 0xda: str(be(2)); break;
        case 0xdb: str(be(4)); break;
        case 0xdc: arr(be(2)); break;
        case 0xdd: arr(be(4)); break;
        case 0xde: map(be(2)); break;
        case 0xdf: map(be(4)); break;
        default: if(t >= 0xe0) num((int8_t)t);
        }
        return v;
    }
};
} // namespace hipemu
