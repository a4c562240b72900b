// The functions of onnxruntime-genai's C interface that docs/clients.md calls, as far as linking needs them:
// the wheel has the library and no headers.
#pragma once
#include <cstddef>
#include <cstdint>

struct OgaModel;
struct OgaTokenizer;
struct OgaSequences;
struct OgaGeneratorParams;
struct OgaGenerator;
struct OgaResult;

extern "C" {
OgaResult* OgaCreateModel(const char*, OgaModel**);
OgaResult* OgaCreateTokenizer(const OgaModel*, OgaTokenizer**);
OgaResult* OgaCreateSequences(OgaSequences**);
OgaResult* OgaTokenizerEncode(const OgaTokenizer*, const char*, OgaSequences*);
size_t OgaSequencesGetSequenceCount(const OgaSequences*, size_t);
OgaResult* OgaCreateGeneratorParams(const OgaModel*, OgaGeneratorParams**);
OgaResult* OgaGeneratorParamsSetSearchBool(OgaGeneratorParams*, const char*, bool);
OgaResult* OgaGeneratorParamsSetSearchNumber(OgaGeneratorParams*, const char*, double);
OgaResult* OgaCreateGenerator(const OgaModel*, const OgaGeneratorParams*, OgaGenerator**);
OgaResult* OgaGenerator_AppendTokenSequences(OgaGenerator*, const OgaSequences*);
bool OgaGenerator_IsDone(OgaGenerator*);
OgaResult* OgaGenerator_GenerateNextToken(OgaGenerator*);
size_t OgaGenerator_GetSequenceCount(const OgaGenerator*, size_t);
const int32_t* OgaGenerator_GetSequenceData(const OgaGenerator*, size_t);
OgaResult* OgaTokenizerDecode(const OgaTokenizer*, const int32_t*, size_t, const char**);
}
