import org.sunflow.SunflowAPI;
import org.sunflow.core.Display;
import org.sunflow.image.Color;
import org.sunflow.math.Matrix4;
import org.sunflow.math.Point3;
import org.sunflow.math.Vector3;

/** Renders spheres of glass, metal and stone lit by the sky, on several threads, and shows nothing. */
public class Render {
    public static void main(String[] args) {
        int size = Integer.parseInt(args[0]), threads = Integer.parseInt(args[1]);
        SunflowAPI api = new SunflowAPI();
        api.reset();
        api.parameter("threads", threads);
        api.parameter("resolutionX", size);
        api.parameter("resolutionY", size);
        api.parameter("aa.min", 0);
        api.parameter("aa.max", 1);
        api.parameter("depths.reflection", 4);
        api.parameter("depths.refraction", 4);
        api.options(SunflowAPI.DEFAULT_OPTIONS);
        api.parameter("transform", Matrix4.lookAt(new Point3(0, -9, 5), new Point3(0, 0, 0.5f), new Vector3(0, 0, 1)));
        api.parameter("fov", 45f);
        api.parameter("aspect", 1f);
        api.camera("camera", "pinhole");
        api.parameter("camera", "camera");
        api.options(SunflowAPI.DEFAULT_OPTIONS);
        api.parameter("up", new Vector3(0, 0, 1));
        api.parameter("east", new Vector3(0, 1, 0));
        api.parameter("sundir", new Vector3(0.5f, -0.4f, 0.8f));
        api.parameter("turbidity", 4f);
        api.parameter("samples", 8);
        api.light("sky", "sunsky");
        api.parameter("diffuse", null, 0.5f, 0.5f, 0.5f);
        api.shader("stone", "diffuse");
        api.parameter("color", null, 0.8f, 0.8f, 0.8f);
        api.shader("metal", "mirror");
        api.parameter("eta", 1.5f);
        api.shader("glass", "glass");
        api.parameter("center", new Point3(0, 0, 0));
        api.parameter("normal", new Vector3(0, 0, 1));
        api.geometry("ground", "plane");
        api.parameter("shaders", "stone");
        api.instance("ground.instance", "ground");
        api.geometry("ball", "sphere");
        String[] shaders = {"stone", "metal", "glass"};
        for (int i = 0; i < 60; i++) {
            Matrix4 place = Matrix4.translation(i % 8 - 3.5f, i / 8 - 3.5f, 0.4f).multiply(Matrix4.scale(0.4f));
            api.parameter("transform", place);
            api.parameter("shaders", shaders[i % shaders.length]);
            api.instance("ball" + i, "ball");
        }
        Picture picture = new Picture();
        api.render(SunflowAPI.DEFAULT_OPTIONS, picture);
        System.out.println("rendered " + picture.pixels);
    }

    static final class Picture implements Display {
        long pixels;

        @Override public void imageBegin(int w, int h, int bucketSize) {
        }

        @Override public void imagePrepare(int x, int y, int w, int h, int id) {
        }

        @Override public synchronized void imageUpdate(int x, int y, int w, int h, Color[] data, float[] alpha) {
            pixels += data.length;
        }

        @Override public void imageFill(int x, int y, int w, int h, Color c, float alpha) {
        }

        @Override public void imageEnd() {
        }
    }
}
