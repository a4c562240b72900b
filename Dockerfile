# The runtime alone: no torch, no onnx.
#
#     docker build -t gpt-onnx .
#     docker run --rm -v "$PWD/bundle:/bundle:ro" gpt-onnx generate /bundle -p "My fellow citizens,"
#
# For another architecture: docker build --platform linux/arm64 -t gpt-onnx .

FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --prefix=/install -c constraints.txt '.[cpu]'

FROM python:3.13-slim
COPY --from=build /install /usr/local
RUN useradd --create-home --uid 10001 gpt
USER gpt
WORKDIR /home/gpt
ENTRYPOINT ["gpt-onnx"]
CMD ["--help"]
